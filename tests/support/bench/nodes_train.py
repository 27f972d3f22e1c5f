"""A training script on several Ray nodes of this machine: the variable `NODES`, each with a logical GPU."""

import os

if __name__ == "__main__":
    from verl.trainer.main_ppo import main  # first, because it sets variables that nodes inherit

    if (nodes := int(os.environ["NODES"])) > 1:
        from ray.cluster_utils import Cluster

        cluster = Cluster()
        for _ in range(nodes):
            cluster.add_node(num_cpus=24, num_gpus=8, object_store_memory=2 << 28, include_dashboard=False)
        os.environ["RAY_ADDRESS"] = cluster.address
    main()
