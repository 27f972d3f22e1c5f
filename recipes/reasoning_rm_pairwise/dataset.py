"""Pairs of answers as questions to a judge; the recipe sets this class as `data.custom_cls`."""

from pathlib import Path

from agent_rl.reasoning_rm import PairwiseTrainDataset, find_template


class ComparisonDataset(PairwiseTrainDataset):
    """Rows with two answers in an order that the row's index determines; the ground truth is the better answer."""

    template = find_template(f"{Path(__file__).with_name('template.py')}:ComparisonTemplate")
