"""Runs on a recorded stream of events (Last.fm): policies, playing, jobs, relative reward."""
