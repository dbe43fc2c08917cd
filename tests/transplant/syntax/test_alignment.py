"""Blocks correspond by their other cases and by what is in them, if their headers or functions changed."""

from __future__ import annotations

from relive.transplant import transplant
from relive.transplant.syntax import align, parse


def test_a_block_is_found_by_its_other_cases_if_its_condition_changed():
    old = (
        "def f(args, data):\n    prepare(args)\n    wait(args)\n    if args.train_data is None:\n        stop(args)\n"
        "    elif args.start == 0:\n        evaluate(data, 0)\n    train(data)\n"
    )
    new = old.replace("args.train_data is None", "'train' not in data").replace(
        "stop(args)", "log(len(data))\n        finish()"
    )
    result = transplant({"a.py": old}, {"a.py": new}, [("a.py", 5)])

    assert result.files["a.py"] == old.replace("        stop(args)", "        log(len(data))\n        stop(args)")


def test_a_main_block_that_became_a_function_is_found():
    old = (
        "import lib\n\nif __name__ == '__main__':\n    config = lib.Config()\n    config.read('settings')\n"
        "    trainer = None\n    try:\n        trainer = lib.Trainer(config)\n        if config.seed and config.path:\n"
        "            trainer.save(step=0, force=True)\n        else:\n            trainer.train()\n"
        "    finally:\n        trainer.close()\n"
    )
    new = (
        "import lib\n\ndef main():\n    manager = lib.Manager()\n    config = manager.read('settings')\n"
        "    trainer: lib.Trainer = None\n    try:\n        if config.mode == 'local':\n            return\n"
        "        trainer = config.build()\n        if config.seed:\n            trainer.save(step=0, last=True)\n"
        "            log('seed', 1)\n        else:\n            trainer.train()\n    except Exception:\n"
        "        trainer.close()\n        raise\n\nif __name__ == '__main__':\n    main()\n"
    )
    result = transplant({"a.py": old}, {"a.py": new}, [("a.py", 13)])

    assert result.files["a.py"] == old.replace("        else:", "            log('seed', 1)\n        else:")


def test_a_function_that_replaced_twins_is_not_spread_over_both():
    def twin(kind: str) -> str:
        return (
            f"    for x in {kind}_loader:\n        features = net(x.images)\n        features = features.cpu()\n"
            f"        {kind}_list.append(features)\n        {kind}_ids.extend(x.ids)\n    show({kind}_list)\n"
        )

    old = f"def evaluate(net, one_loader, two_loader):\n{twin('one')}{twin('two')}"
    inner = "".join(f"    {line}\n" for line in twin("some").replace("some_loader", "loader").splitlines()[:-1])
    new = (
        f"def evaluate(net, one_loader, two_loader):\n    def extract(loader):\n{inner}"
        "        log('ids', len(some_ids))\n    extract(one_loader)\n    extract(two_loader)\n"
    )
    trees = parse(old), parse(new)
    partners = [node for node in align(*trees).old[2:8] if node is not None]

    assert len({node.parent for node in partners}) <= 1
