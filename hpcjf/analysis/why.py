"""Why a trial was chosen: the figures that a method gives with a proposal, in words."""

from __future__ import annotations

from collections.abc import Mapping

from hpcjf.analysis.words import duration, text_of
from hpcjf.study import SearchSection
from hpcjf.types import Scalar, Trial

_REASONS = {
    "recipe": "It is the recipe, which is to be beaten.",
    "given": "It is one of search.configurations.",
    "initial design": "It belongs to the design that fills the space before there is anything to learn from.",
    "random": "It was drawn at random.",
    "exploration": "It is a promising one drawn at random and run in full, to mend a surrogate that is sure and wrong.",
    "grid": "It is the next point of the grid.",
    "model": "Of the samples of the method's model it is most like the good configurations and unlike the others.",
    "acquisition": "It promised the largest gain for its cost.",
    "promotion": "Its configuration did well enough at a smaller budget to get a larger one.",
    "target probe": "It tries on the target what a smaller model knows, to learn how far that one is to be trusted.",
    "full run": "Full runs of the target have a share of the cost of their own, and it was the turn of one.",
    "larger model": "A smaller model ranks unlike the target and has had its share of the cost: a larger one was due.",
    "the recipe to beat": "It is a run of the recipe for the final comparison.",
    "the search's winner": "It is a run of the winner for the final comparison.",
}
_GAINS = {
    "joint": "Expected gain of the target's posterior mean at full budget: {expected_improvement}.",
    "paper": "Expected improvement over the incumbent at full budget: {expected_improvement}.",
}
_FIGURES = {
    "marginal_cost_s": "Expected cost, start-up and the steps still to run: {cost}.",
    "target_mean target_std": "Expected score of the target at full budget: {target_mean} ± {target_std}.",
    "feasible": "Probability that it gives a score at all: {feasible}.",
    "candidates": "Candidates that were weighed, each with its model and budget: {candidates}.",
    "bracket rung": "Bracket {bracket}, rung {rung}, both counted from 0.",
    "rank": "Its rank in the rung below: {rank}.",
    "point points": "Point {point} of {points}, counted from 0.",
    "model_budget": "The model was fitted to scores at {model_budget} steps.",
    "good bad": "The model told {good} good configurations from {bad} others.",
    "transfer_spearman transfer_count": (
        "A smaller model and the target agreed by a Spearman correlation of {transfer_spearman} over {transfer_count} "
        "configurations, at worst."
    ),
    "transfer_spearman": (
        "A smaller model and the target agreed by a Spearman correlation of {transfer_spearman}, at worst."
    ),
    "told": "It was chosen knowing the {told} trials before number {told}, and no other.",
}


def explain(trial: Trial, search: SearchSection) -> list[str]:
    """One sentence a line, and a line for every figure that no sentence knows."""
    left = {name: text_of(value) for name, value in trial.why.items()}
    reason = left.pop("reason", "")
    lines = [_REASONS.get(reason, f"Reason: {reason or 'none was given'}.")]
    if "resumed_from" in left:
        lines.append(_start(trial, int(left.pop("resumed_from"))))
    shown = left | {"cost": _cost(trial.why, search)}
    for names, text in ({"expected_improvement": _GAINS[search.acquisition]} | _FIGURES).items():
        if all(name in left for name in names.split()):
            lines.append(text.format_map(shown))
            left = {name: value for name, value in left.items() if name not in names.split()}
    return [*lines, *(f"{name}: {value}" for name, value in left.items())]


def _start(trial: Trial, done: int) -> str:
    where = f"goes on from the checkpoint at step {done}" if done else "starts from the base weights"
    return f"It {where}: {trial.fidelity.steps - done} steps to run on {trial.fidelity.model}."


def _cost(why: Mapping[str, Scalar], search: SearchSection) -> str:
    """In seconds; deterministic studies count completion tokens times the model's size relative to the target's."""
    cost, gain = float(why.get("marginal_cost_s", 0.0)), float(why.get("expected_improvement", 0.0))
    if not cost:
        return duration(cost)
    if search.deterministic:
        return f"{cost:.3g} tokens of the target; gain per million: {1e6 * gain / cost:.4g}"
    return f"{duration(cost)}; gain per hour: {3600 * gain / cost:.4g}"
