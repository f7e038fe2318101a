# SPDX-License-Identifier: MIT
"""The exception for PTX that the translator does not take."""


class Refused(Exception):
    """PTX that has no translation, or that promises less than the project's arithmetic: why."""
