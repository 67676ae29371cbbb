"""Creates a dataflow from its description."""

from streams.compute.description import DataflowDescription
from streams.ids import CapabilityId
from streams.plan import json as plan_json
from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.fingerprint import fingerprint, plan_name
from streams.replica.ingest import plan as ingest_plan


def new_dataflow(description: DataflowDescription, replica: str, buckets: int) -> Dataflow:
    """Return the dataflow, of which nothing is stored yet.

    `replica` names this replica's own holds on the imports, beside those of the dataflow.

    Errors: InvalidUsage if the plan or the source's keys are not understood.
    """
    source = description.source
    plan = (
        plan_json.loads(description.plan)
        if source is None
        else ingest_plan.dataflow(source, description.columns)
    )
    text = plan_json.dumps(plan)
    return Dataflow(
        description=description,
        plan=plan,
        plan_name=plan_name(text),
        fingerprint=fingerprint(text, buckets),
        holds={
            imported.collection: CapabilityId(f"{imported.hold}@{replica}")
            for imported in description.imports
        },
    )
