"""The real file system, JuiceFS client and secret files behind the ports."""
