"""How schedulers make latency: FCFS, SJF, priority, aging, preemption, chunking and tiling, in numbers."""
