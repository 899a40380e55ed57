"""g-ray data covisibility: computed once, stored beside each scene, broken scenes named."""

from g_ray.cli.main import main


def test_it_computes_what_is_missing(tmp_path, room_scenes, capsys):
    for number in range(2):
        room_scenes.write_nerfstudio_depth(tmp_path / f"scene{number}", room_scenes.shots(3, seed=number))
    assert main(["data", "covisibility", str(tmp_path), "--workers", "1"]) == 0
    assert "2 scenes: 2 computed, 0 there, 0 skipped" in capsys.readouterr().out
    stored = sorted(tmp_path.rglob("*.npy"))
    assert [path.parent.parts[-2:] for path in stored] == [("covisibility", "g-ray")] * 2
    room_scenes.write_nerfstudio(tmp_path / "scene2", room_scenes.shots(3))
    assert main(["data", "covisibility", str(tmp_path), "--workers", "1"]) == 1
    said = capsys.readouterr()
    assert "2 scenes" not in said.out and "3 scenes: 0 computed, 2 there, 1 skipped" in said.out
    assert "scene2: neither depth nor covisibility" in said.err
    assert sorted(tmp_path.rglob("*.npy")) == stored


def test_wrong_arguments_are_one_line(tmp_path, capsys):
    assert main(["data", "covisibility", str(tmp_path)]) == 2
    assert "no scene folder" in capsys.readouterr().err
