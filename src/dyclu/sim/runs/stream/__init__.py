"""Runs on recorded events, such as Last.fm: policies, playing, relative reward, jobs."""
