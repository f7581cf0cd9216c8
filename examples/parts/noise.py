"""An algorithm of a user's own: back-propagation with noise on the gradients (Neelakantan et al., 2015)."""

from __future__ import annotations

from singa_dask import BP, generator


class NoisyBP(BP):
    """Adds N(0, eta / (1 + step)^gamma) to each gradient, the same on all workers of a group."""

    def __init__(self, net, collect, update, conf):
        super().__init__(net, collect, self.add_noise, conf)
        self.hand_over = update

    def add_noise(self, step, param):
        """Take a gradient that is ready, and hand it over."""
        eta, gamma = self.conf.user_conf.get("eta", 0.01), self.conf.user_conf.get("gamma", 0.55)
        random = generator((self.net.context.seed, "noise", param.name, step))
        noise = (eta / (1 + step) ** gamma) ** 0.5 * random.standard_normal(param.shape, "float32")
        param.grad += self.net.ops.from_host(noise)  # gradients may lie on a GPU
        self.hand_over(step, param)
