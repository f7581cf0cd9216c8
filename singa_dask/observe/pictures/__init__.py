"""Pictures and pages of runs.

`curves`: computes the curves. `figure`: draws them with matplotlib. `text_figure`: draws them as text. `timeline`:
draws the threads of a step. `html`: writes pages. `comparison`, `comparison_page`: compare runs under several
topologies.
"""

__all__: list[str] = []
