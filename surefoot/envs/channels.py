"""What the numbers of observations and actions mean, as Gymnasium's documentation says it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

_LEGS = ("front left", "front right", "back left", "back right")
_ANT_BODIES = ("torso", *(f"{leg} {part}" for leg in _LEGS for part in ("hip", "leg", "foot")))
_ANT_JOINTS = tuple(f"{leg} {joint}" for leg in _LEGS for joint in ("hip", "ankle"))
_PLANAR_JOINTS = {
    "Hopper": ("thigh", "leg", "foot"),
    "HalfCheetah": (
        *("back thigh", "back shin", "back foot"),
        *("front thigh", "front shin", "front foot"),
    ),
    "Walker2d": (
        *("right thigh", "right leg", "right foot"),
        *("left thigh", "left leg", "left foot"),
    ),
}
_HUMANOID_JOINTS = (
    *("abdomen z", "abdomen y", "abdomen x"),
    *("right hip x", "right hip z", "right hip y", "right knee"),
    *("left hip x", "left hip z", "left hip y", "left knee"),
    *("right shoulder 1", "right shoulder 2", "right elbow"),
    *("left shoulder 1", "left shoulder 2", "left elbow"),
)
_HUMANOID_BODIES = (
    *("torso", "lower waist", "pelvis"),
    *("right thigh", "right shin", "right foot", "left thigh", "left shin", "left foot"),
    *("right upper arm", "right lower arm", "left upper arm", "left lower arm"),
)
_ARM = (
    *("shoulder pan", "shoulder lift", "upper arm roll", "elbow flex", "forearm roll"),
    *("wrist flex", "wrist roll"),
)
_AXES = ("x", "y", "z")
_FREE_BODY = ("height", "orientation w", "orientation x", "orientation y", "orientation z")
_FREE_SPEEDS = (*(f"velocity {a}" for a in _AXES), *(f"angular velocity {a}" for a in _AXES))
_FORCES = (*(f"torque {a}" for a in _AXES), *(f"force {a}" for a in _AXES))
_INERTIA = (*(f"inertia {n}" for n in range(1, 7)), *(f"offset {a}" for a in _AXES), "mass")


def _planar(joints: Sequence[str]) -> tuple[str, ...]:
    """Name what a body in the plane observes: positions but x, then velocities."""
    angles, speeds = (f"{joint} angle" for joint in joints), (f"{joint} speed" for joint in joints)
    return ("height", "torso angle", *angles, "velocity x", "velocity z", "torso speed", *speeds)


def _spatial(joints: Sequence[str]) -> tuple[str, ...]:
    """Name what a free body observes of its joints."""
    angles, speeds = (f"{joint} angle" for joint in joints), (f"{joint} speed" for joint in joints)
    return (*_FREE_BODY, *angles, *_FREE_SPEEDS, *speeds)


def _each(things: Sequence[str], properties: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{thing} {what}" for thing, what in product(things, properties))


_HUMANOID = (
    *_spatial(_HUMANOID_JOINTS),
    *_each(_HUMANOID_BODIES, _INERTIA),
    *_each(_HUMANOID_BODIES, (*_FREE_SPEEDS[3:], *_FREE_SPEEDS[:3])),
    *(f"{joint} actuator force" for joint in _HUMANOID_JOINTS),
    *_each(_HUMANOID_BODIES, _FORCES),
)
_WALKER = (
    *("hull angle", "hull angular velocity", "horizontal velocity", "vertical velocity"),
    *("hip 1 angle", "hip 1 speed", "knee 1 angle", "knee 1 speed", "leg 1 contact"),
    *("hip 2 angle", "hip 2 speed", "knee 2 angle", "knee 2 speed", "leg 2 contact"),
    *(f"lidar {n}" for n in range(1, 11)),
)
_LANDER = (
    *("position x", "position y", "velocity x", "velocity y", "angle", "angular velocity"),
    *("left leg contact", "right leg contact"),
)
OBSERVATIONS: dict[str, tuple[str, ...]] = {
    "CartPole": ("cart position", "cart velocity", "pole angle", "pole angular velocity"),
    "Pendulum": ("cos angle", "sin angle", "angular velocity"),
    "Acrobot": (
        *("cos angle 1", "sin angle 1", "cos angle 2", "sin angle 2"),
        *("angular velocity 1", "angular velocity 2"),
    ),
    "MountainCar": ("position", "velocity"),
    "MountainCarContinuous": ("position", "velocity"),
    "LunarLander": _LANDER,
    "LunarLanderContinuous": _LANDER,
    "BipedalWalker": _WALKER,
    "BipedalWalkerHardcore": _WALKER,
    **{name: _planar(joints) for name, joints in _PLANAR_JOINTS.items()},
    "Swimmer": (
        *("front angle", "joint 1 angle", "joint 2 angle"),
        *("velocity x", "velocity y", "front speed", "joint 1 speed", "joint 2 speed"),
    ),
    "InvertedPendulum": ("cart position", "pole angle", "cart velocity", "pole angular velocity"),
    "InvertedDoublePendulum": (
        *("cart position", "sin angle 1", "sin angle 2", "cos angle 1", "cos angle 2"),
        *("cart velocity", "angular velocity 1", "angular velocity 2", "constraint force"),
    ),
    "Reacher": (
        *("cos angle 1", "cos angle 2", "sin angle 1", "sin angle 2", "target x", "target y"),
        *("angular velocity 1", "angular velocity 2", "to target x", "to target y"),
    ),
    "Pusher": (
        *(f"{joint} angle" for joint in _ARM),
        *(f"{joint} speed" for joint in _ARM),
        *_each(("fingertip", "object", "goal"), _AXES),
    ),
    "Ant": (*_spatial(_ANT_JOINTS), *_each(_ANT_BODIES, _FORCES)),
    "Humanoid": _HUMANOID,
    "HumanoidStandup": _HUMANOID,
}
"""By the name of an id without its version."""
ACTIONS: dict[str, tuple[str, ...]] = {
    "CartPole": ("push left", "push right"),
    "Pendulum": ("torque",),
    "Acrobot": ("torque -1", "no torque", "torque +1"),
    "MountainCar": ("left", "nothing", "right"),
    "MountainCarContinuous": ("force",),
    "LunarLander": ("nothing", "left engine", "main engine", "right engine"),
    "LunarLanderContinuous": ("main engine", "side engines"),
    "BipedalWalker": ("hip 1", "knee 1", "hip 2", "knee 2"),
    "BipedalWalkerHardcore": ("hip 1", "knee 1", "hip 2", "knee 2"),
    **_PLANAR_JOINTS,
    "Swimmer": ("joint 1", "joint 2"),
    "InvertedPendulum": ("force",),
    "InvertedDoublePendulum": ("force",),
    "Reacher": ("joint 1", "joint 2"),
    "Pusher": _ARM,
    "Ant": (
        *("back right hip", "back right ankle", "front left hip", "front left ankle"),
        *("front right hip", "front right ankle", "back left hip", "back left ankle"),
    ),
    "Humanoid": ("abdomen y", "abdomen z", *_HUMANOID_JOINTS[2:]),
    "HumanoidStandup": ("abdomen y", "abdomen z", *_HUMANOID_JOINTS[2:]),
}
"""Of choices their options, of numbers each."""


def observation_names(env_id: str, env: Any, size: int) -> list[str]:
    """Name the numbers of an observation: as the environment says, else as is known, else by
    number."""
    own = getattr(getattr(env, "unwrapped", env), "observation_names", None)
    return _fitting((own, OBSERVATIONS.get(_base(env_id))), size, "observation")


def action_names(env_id: str, env: Any, size: int) -> list[str]:
    """Name the options of a choice, or the numbers of an action."""
    own = getattr(getattr(env, "unwrapped", env), "action_names", None)
    return _fitting((own, ACTIONS.get(_base(env_id))), size, "action")


def _fitting(candidates: Sequence[Sequence[str] | None], size: int, what: str) -> list[str]:
    """Take the first names of which there are as many as there are numbers."""
    for names in candidates:
        if names is not None and not isinstance(names, str) and len(names) == size:
            return [str(name) for name in names]
    return [f"{what} {number}" for number in range(size)]


def _base(env_id: str) -> str:
    """Take `gymnasium`'s name out of an id: module, namespace and version are left out."""
    return env_id.split(":")[-1].split("/")[-1].rsplit("-v", 1)[0]
