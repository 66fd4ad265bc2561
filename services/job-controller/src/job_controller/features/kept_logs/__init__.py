"""The last lines of pods are kept when `cleanPodPolicy` deletes the pods."""
