"""Recurrent layers, step by step and row by row, in fp64: the formulas as they are printed."""

import torch


def read(m, layer, which, suffix, x):
    """W x + w_t·time(x)/√d + b of one point."""
    u, time = m.ambient(x)
    out = getattr(layer, f"weight_{which}_{suffix}") @ u + getattr(layer, f"bias_{which}_{suffix}")
    return out if time is None else out + getattr(layer, f"time_weight_{which}_{suffix}") @ time / len(x) ** 0.5


def toward(m, x, y, part):
    return m.translate(m.lift(part * m.lower(m.translate(y, -x))), x)


def rnn_step(m, layer, suffix, x, state):
    (h,) = state
    return (m.point(torch.tanh(read(m, layer, "ih", suffix, x) + read(m, layer, "hh", suffix, h))),)


def gru_step(m, layer, suffix, x, state):
    (h,) = state
    size = len(h)
    into, back = read(m, layer, "ih", suffix, x), read(m, layer, "hh", suffix, h)
    r, z = torch.sigmoid(into[:size] + back[:size]), torch.sigmoid(into[size : 2 * size] + back[size : 2 * size])
    if layer.reset == "before":
        kept = m.point(r * m.ambient(h)[0])
        candidate = torch.tanh(into[2 * size :] + read(m, layer, "hh", suffix, kept)[2 * size :])
    else:
        candidate = torch.tanh(into[2 * size :] + r * back[2 * size :])
    walked = m.ambient(toward(m, h, m.point(candidate), 1 - z))[0]
    most = torch.maximum(m.ambient(h)[0].abs(), candidate.abs())
    return (m.point(torch.minimum(torch.maximum(walked, -most), most)),)


def lstm_step(m, layer, suffix, x, state):
    h, c = state
    i, f, g, o = (read(m, layer, "ih", suffix, x) + read(m, layer, "hh", suffix, h)).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return m.point(torch.sigmoid(o) * torch.tanh(c)), c


STEPS = {"RNN": rnn_step, "GRU": gru_step, "LSTM": lstm_step}


def run(layer, sequence, states=None):
    """One sequence (T, d) -> (T, h), parts x (layers, h)"""
    m, step = layer.manifold, STEPS[layer._get_name()]
    parts = 2 if layer._get_name() == "LSTM" else 1
    if states is None:
        states = [[torch.zeros(layer.hidden_size, dtype=sequence.dtype)] * parts for _ in range(100)]
    last = []
    for number in range(layer.num_layers):
        outs = []
        for suffix in ("", "_reverse")[: 1 + layer.bidirectional]:
            state, out = tuple(states[len(last)]), []
            for x in sequence.flip(0) if suffix else sequence:
                state = step(m, layer, f"l{number}{suffix}", x, state)
                out.append(state[0])
            outs.append(torch.stack(out[::-1] if suffix else out))
            last.append(state)
        joined = torch.cat([m.ambient(out)[0] for out in outs], -1)
        sequence = m.point(joined) if layer.bidirectional else outs[0]
    return sequence, tuple(torch.stack(part) for part in zip(*last, strict=True))
