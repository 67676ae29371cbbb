"""Creates a dataflow from its description."""

from streams.compute.description import DataflowDescription
from streams.ids import CapabilityId
from streams.plan import json as plan_json
from streams.plan import physical
from streams.replica.driver import rebase_planner
from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.fingerprint import fingerprint, plan_name
from streams.replica.ingest import plan as ingest_plan


def new_dataflow(description: DataflowDescription, replica: str) -> Dataflow:
    """Return the dataflow, of which nothing is stored yet.

    `replica` names this replica's own holds on the imports, beside those of the dataflow.

    Errors: InvalidUsage if the plan or the source's keys are not understood.
    """
    plan = _plan(description)
    text = plan_json.dumps(plan)
    return Dataflow(
        description=description,
        plan=plan,
        plan_name=plan_name(text),
        fingerprint=fingerprint(text),
        holds={
            imported.collection: CapabilityId(f"{imported.hold}@{replica}")
            for imported in description.imports
        },
    )


def _plan(description: DataflowDescription) -> physical.Dataflow:
    """Return the plan: that of an ingestion or a rebase follows from the description."""
    if description.source is not None:
        return ingest_plan.dataflow(description.source, description.columns)
    if description.kind == "rebase":
        return rebase_planner.plan_of(description)
    return plan_json.loads(description.plan)
