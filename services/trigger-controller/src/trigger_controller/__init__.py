"""trigger-controller: creates jobs on facts, notifications of object stores, and schedules."""
