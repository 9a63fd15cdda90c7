"""`python -m twinshore.proxy.several` is one of several processes; see `part`."""

from twinshore.proxy.several.part import main

if __name__ == "__main__":
    main()
