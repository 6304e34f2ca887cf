"""The core of Signalbox: definitions, compiler and runtime. See README.md in this folder."""
