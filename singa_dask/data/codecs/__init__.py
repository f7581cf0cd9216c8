"""Codecs: conversion between bytes and arrays, one file per format, independent of stores."""

__all__: list[str] = []
