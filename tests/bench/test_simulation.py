"""Machines in virtual time, and our own controller on them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from bench.hill import Hill

from hpcjf.controller.answer import Answer
from hpcjf.core.lifecycle import StudyState
from hpcjf.core.stopping import decide
from hpcjf.store.layout import RunLayout
from hpcjf.store.messages import AttemptResult
from hpcjf.store.traces import Rows, read_trace
from hpcjf.types import Cause, Config, Fidelity, Observation, Proposal, Purpose
from race.ours import METHODS, controlled, run_directory, run_ours, study_of
from race.pool import Job, Pool, Site, Training
from race.simulation import live, rows_of

SOUND: Config = {"learning_rate": 1e-5, "clip_range": 0.2}
OTHER: Config = {"learning_rate": 2e-5, "clip_range": 0.2}
COLLAPSING: Config = {"learning_rate": 1e-5, "clip_range": 0.39}
DIVERGING: Config = {"learning_rate": 9e-5, "clip_range": 0.2}
PLENTY = 1e6
Asked = tuple[Config, str, int]


class Lived:
    """A study whose search asks for what a list says, up to 8 at once, lived through to its end."""

    def __init__(self, asked: Sequence[Asked], site: Site, method: str = "jfhpo", budget: float = PLENTY) -> None:
        self.pool, self.state, self._asked = Pool(Hill(), 0, site), StudyState(), list(asked)
        self.study = study_of(Hill(), METHODS[method], 0, PLENTY, site, search={"parallel": 8})
        self.ticks = 0
        self.traces: list[Rows] = []
        self.results: list[AttemptResult | None] = []
        with (
            run_directory() as root,
            controlled(root, self.study, self.pool, self.state, self._ask) as (controller, cluster),
        ):
            for _ in live(controller, cluster, budget):
                self.ticks += 1
            self._read(controller.layout)

    def _ask(self, count: int) -> Answer:
        known, self._asked = self._asked[:count], self._asked[count:]
        proposals = (Proposal(config, Fidelity(model, steps)) for config, model, steps in known)
        return Answer(tuple(proposals), SOUND)

    def _read(self, layout: RunLayout) -> None:
        for attempt in (attempt for trial in self.state.of(Purpose.SEARCH) for attempt in trial.attempts):
            paths = layout.attempt(attempt.trial, attempt.number)
            self.traces.append(read_trace(paths.trace))
            self.results.append(AttemptResult.read(paths.result) if paths.result.exists() else None)

    @property
    def seen(self) -> list[Observation]:
        """What the search would be told."""
        observations = (trial.observation() for trial in self.state.of(Purpose.SEARCH))
        return [observation for observation in observations if observation and not observation.cause.infrastructure]


def one_by_one(*asked: Asked, site: Site, method: str = "jfhpo") -> Lived:
    """The jobs of a study that has one worker."""
    return Lived(asked, site, method)


def test_time_adds_up_on_one_worker() -> None:
    lived = Lived([(SOUND, "proxy", 10), (OTHER, "target", 30), (SOUND, "target", 10)], Site(workers=1, latency=7))
    times = [5 + 10 * 1, 20 + 30 * 4, 20 + 10 * 4]
    assert [o.seconds + o.startup_seconds for o in lived.seen] == pytest.approx(times)
    assert lived.pool.cost == pytest.approx(sum(times))
    assert lived.pool.steps == 10 + 30 + 10
    # all were submitted at once: only the first one waits for the scheduler
    assert lived.pool.now - 1 == pytest.approx(7 + sum(times))
    assert lived.state.last_time == lived.pool.now


def test_the_clock_jumps_from_change_to_change() -> None:
    lived = Lived([(SOUND, "target", 90), (OTHER, "target", 90)], Site(workers=2, latency=7))
    # the submissions, the starts, the ends
    assert lived.ticks == 3


def test_a_promoted_trial_pays_for_the_new_steps_only() -> None:
    lived = one_by_one((SOUND, "target", 30), (SOUND, "target", 90), (SOUND, "proxy", 90), site=Site(workers=1))
    assert [(o.start_step, o.fidelity.steps) for o in lived.seen] == [(0, 30), (30, 90), (0, 90)]
    assert [o.seconds for o in lived.seen] == pytest.approx([30 * 4, 60 * 4, 90])
    assert lived.traces[1]["step"].tolist() == list(range(31, 91))


def test_without_checkpoints_a_promoted_trial_starts_again() -> None:
    site = Site(workers=1, save_every=None)
    lived = one_by_one((SOUND, "target", 30), (SOUND, "target", 90), site=site)
    assert [(o.start_step, o.fidelity.steps) for o in lived.seen] == [(0, 30), (0, 90)]
    assert lived.pool.cost == pytest.approx(2 * 20 + (30 + 90) * 4)
    assert lived.study.checkpoints.save_every > 90


def test_a_failed_node_is_retried_from_its_checkpoint_and_never_told() -> None:
    asked = [({**SOUND, "learning_rate": 1e-6 * (k + 1)}, "target", 90) for k in range(8)]
    lived = Lived(asked, Site(workers=2, failures=0.4))
    failed = [job for job in lived.pool.begun if job.cause is Cause.NODE_FAILURE]
    assert len(failed) == len(lived.pool.begun) - 8 > 2
    assert [o.cause for o in lived.seen] == [Cause.COMPLETED] * 8
    assert sum(o.seconds + o.startup_seconds for o in lived.seen) == pytest.approx(lived.pool.cost)
    starts = {job.training: [] for job in lived.pool.begun}
    for job in lived.pool.begun:
        starts[job.training].append((job.start_step, job.step(job.end)))
    for runs in starts.values():
        assert all(start == reached // 10 * 10 for (_, reached), (start, _) in itertools.pairwise(runs))
    whole = [result for result in lived.results if result]
    assert [result.cause for result in whole] == [Cause.COMPLETED] * 8


@pytest.mark.parametrize("resumed", [False, True])
def test_a_stop_order_is_obeyed_at_the_row_where_the_rule_fires(resumed: bool) -> None:
    first: list[Asked] = [(COLLAPSING, "target", 30)] if resumed else []
    lived = one_by_one(*first, (COLLAPSING, "target", 90), site=Site(workers=1))
    fired = decide(rows_of(Hill().curve(COLLAPSING, "target", 0), 90), lived.study.stopping)
    assert fired is not None
    assert 40 < fired.step < 60
    stopped = lived.seen[-1]
    assert (stopped.cause, stopped.fidelity.steps) == (Cause.STOPPED_REWARD, fired.step)
    assert stopped.seconds == pytest.approx((fired.step - 30 * resumed) * 4)
    assert lived.traces[-1]["step"][-1] == fired.step
    assert lived.results[-1]
    assert lived.results[-1].detail == fired.why


def test_a_stopped_trial_is_scored_where_it_stopped() -> None:
    lived = one_by_one((COLLAPSING, "target", 90), site=Site(workers=1))
    steps, score = lived.seen[0].fidelity.steps, lived.seen[0].score
    curve = Hill().curve(COLLAPSING, "target", 0)
    before, after = curve.score[steps // 10 * 10 - 1], curve.score[steps // 10 * 10 + 9]
    assert score == pytest.approx(before + (after - before) * (steps % 10) / 10)


def test_a_diverging_trial_ends_at_its_broken_step() -> None:
    lived = one_by_one((DIVERGING, "target", 90), site=Site(workers=1))
    assert [(o.cause, o.fidelity.steps) for o in lived.seen] == [(Cause.DIVERGED, 50)]
    assert np.isnan(lived.traces[0]["kl"][-1])
    assert np.isfinite(lived.traces[0]["kl"][:-1]).all()
    assert lived.pool.configurations() == {lived.seen[0].config_id}


def test_the_trace_says_when_its_rows_came() -> None:
    lived = one_by_one((SOUND, "target", 10), site=Site(workers=1, latency=3))
    assert lived.traces[0]["time"] == pytest.approx(1 + 3 + 20 + 4 * np.arange(1, 11))
    assert lived.traces[0]["eval_score"][9] == lived.seen[0].score


def test_no_more_jobs_run_than_there_are_workers() -> None:
    asked = [({**SOUND, "learning_rate": 1e-6 * (k + 1)}, "proxy", 10 * (1 + k % 3)) for k in range(20)]
    lived = Lived(asked, Site(workers=3, latency=2, failures=0.2))
    spans = [(job.started, job.end) for job in lived.pool.begun]
    together = [sum(start <= moment < end for start, end in spans) for moment, _ in spans]
    assert max(together) == 3
    assert [job.started for job in lived.pool.begun] == sorted(job.started for job in lived.pool.begun)
    assert len(lived.seen) == 20


def test_the_budget_cuts_in_the_middle_of_jobs() -> None:
    asked = [(SOUND, "target", 90), (OTHER, "target", 90), (DIVERGING, "target", 30)]
    lived = Lived(asked, Site(workers=2), budget=500)
    assert lived.pool.cost == pytest.approx(500)
    assert len(lived.pool.running) == 2
    assert lived.pool.steps == sum(job.step(lived.pool.now) - job.start_step for job in lived.pool.begun)


def test_configurations_count_once_and_from_the_lowest_rung_on() -> None:
    asked = [(SOUND, "proxy", 10), (SOUND, "target", 10), (OTHER, "target", 9), (DIVERGING, "proxy", 10)]
    assert len(Lived(asked, Site()).pool.configurations()) == 2
    # in flight, before and after the tenth step
    for seconds, count in ((59, 0), (61, 1)):
        assert len(Lived([(SOUND, "target", 90)], Site(), budget=seconds).pool.configurations()) == count


def test_an_order_in_the_middle_of_a_step_waits_for_its_end() -> None:
    pool = Pool(Hill(), 0, Site(latency=0))
    job = pool.submit(Training("a", "target"), SOUND, 90)
    job.stop(1 + 20 + 4 * 7 + 1, Cause.STOPPED_KL)
    assert (job.end, job.step(job.end), job.cause) == (1 + 20 + 4 * 8, 8, Cause.STOPPED_KL)
    early = Job(2, Training("b", "target"), SOUND, 90, (), 1.0, job.curve, 20.0)
    early.start(1.0, 30)
    early.stop(2.0, Cause.STOPPED_KL)
    assert (early.end, early.step(early.end)) == (21.0, 30)


def test_a_cancelled_job_gives_its_worker_back() -> None:
    pool = Pool(Hill(), 0, Site(workers=1, latency=0))
    first, second = (pool.submit(Training(name, "target"), SOUND, 90) for name in "ab")
    assert math.isinf(second.started)
    pool.cancel(first)
    assert (first.end, second.started) == (1.0, 1.0)
    pool.cancel(second)
    assert not pool.active
    assert pool.cost == 0


def test_the_remaining_training_is_what_a_job_would_cost() -> None:
    lived = one_by_one((SOUND, "target", 30), (OTHER, "target", 90), site=Site(workers=1))
    assert lived.pool.remaining(SOUND) == pytest.approx(20 + 60 * 4)
    assert lived.pool.remaining(OTHER) == 0
    assert lived.pool.remaining(DIVERGING) == pytest.approx(20 + 50 * 4)


@pytest.mark.parametrize("method", ["random", "jfhpo"])
def test_the_same_seed_gives_the_same_outcome(method: str) -> None:
    site = Site(workers=3, latency=5, failures=0.1)
    first, again, other = (run_ours(Hill(), method, seed, 1500, site) for seed in (1, 1, 2))
    assert first == again
    assert first.points != other.points
    assert first.asks > 3
    assert first.controller_cpu > 0
    assert first.ask_cpu > 0


def test_rungs_that_a_study_cannot_have_are_refused() -> None:
    problem = Hill()
    problem.rungs = (10, 11, 90)
    with pytest.raises(ValueError, match="hill"):
        study_of(problem, METHODS["random"], 0, PLENTY, Site())
