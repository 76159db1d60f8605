"""Commands that keep runs and policies, here and elsewhere."""

from __future__ import annotations


def pull(words: list[str]) -> int:
    """Fetch a run from its mirror:        surefoot pull URL"""
    from surefoot.options import PullOptions
    from surefoot.parsing import parse

    options = parse(PullOptions, words, "pull")
    from surefoot.elsewhere import pull as fetch
    from surefoot.mirroring import transfer

    with transfer(f"fetching {options.url}") as show:
        run = fetch(options.url, options.out, show)
    print(run.path)
    return 0


def push(words: list[str]) -> int:
    """Send a run to a mirror:             surefoot push RUN URL"""
    from surefoot.options import PushOptions
    from surefoot.parsing import parse

    options = parse(PushOptions, words, "push")
    from surefoot.elsewhere import push as send
    from surefoot.mirroring import transfer

    with transfer(f"sending to {options.url}") as show:
        place = send(options.run, options.url, options.keep, options.take_over, show)
    print(place)
    return 0


def drive(words: list[str]) -> int:
    """Use your Google Drive:              surefoot drive login"""
    from surefoot.options import DriveOptions
    from surefoot.parsing import parse

    options = parse(DriveOptions, words, "drive")
    from surefoot.store.drive_login import log_in, log_out, require_installed, status

    require_installed()
    if options.action == "login":
        print(log_in(options.client, options.service_account, options.browser, input, print))
    else:
        print(log_out() if options.action == "logout" else status())
    return 0


def pin(words: list[str]) -> int:
    """Keep a checkpoint for good:         surefoot pin RUN STEP"""
    from surefoot.options import PinOptions
    from surefoot.parsing import parse

    options = parse(PinOptions, words, "pin")
    from surefoot.run import Run

    found = Run.open(options.run).pin(options.step, not options.remove)
    print(f"{found.path} {'goes with its time again' if options.remove else 'stays'}")
    return 0


def export(words: list[str]) -> int:
    """Write a policy for other programs:  surefoot export RUN --format onnx"""
    from surefoot.options import ExportOptions
    from surefoot.parsing import parse

    options = parse(ExportOptions, words, "export")
    from surefoot.run import Run

    print(Run.open(options.run).export(options.format, options.out, options.checkpoint))
    return 0
