# SPDX-License-Identifier: MIT
"""What the translator says of PTX that it does not take."""


class Refused(Exception):
    """PTX that has no translation, or that promises less than the project's arithmetic: why."""
