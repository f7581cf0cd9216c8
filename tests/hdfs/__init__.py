"""Tests on a real HDFS."""
