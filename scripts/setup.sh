#!/bin/sh
# Makes .venv ready for every other make target. The first run takes minutes and says what it does; later runs only look.
# What is checked here is all that a machine must bring: Java 17+ and Python 3.11+ with its venv module.
set -eu
cd "$(dirname "$0")/.."

stop() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

check_java() {
    java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
    command -v "$java" >/dev/null 2>&1 || stop "Java 17 or newer is needed, and '$java' is not here; install a JRE or set JAVA_HOME."
    text=$("$java" -version 2>&1) || stop "Java 17 or newer is needed, and '$java -version' fails; install a JRE or set JAVA_HOME."
    major=$(printf '%s\n' "$text" | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1)
    [ "${major:-0}" -ge 17 ] || stop "Java 17 or newer is needed, and '$java' is ${major:-of an unknown version}; install a newer JRE or set JAVA_HOME."
}

# Prints the first Python that is new enough and can make virtual environments.
find_python() {
    newest='' without_venv=''
    for name in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3; do
        # A version manager's shim may exist for a Python that is not there, so each one is run, not only looked up.
        version=$("$name" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        newest=$version
        "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || continue
        "$name" -c 'import venv, ensurepip' 2>/dev/null && printf '%s\n' "$name" && return
        without_venv=$version
    done
    [ -z "$without_venv" ] || stop "Python $without_venv has no venv module; install it (Debian and Ubuntu: apt install python$without_venv-venv)."
    [ -z "$newest" ] || stop "Python 3.11 or newer is needed, and only $newest is here; install one or name it: make PYTHON=/path/to/python3."
    stop "Python 3.11 or newer is needed, and no python3 is here; install one or name it: make PYTHON=/path/to/python3."
}

check_java
python=$(find_python)
exec "$python" -I scripts/prepare.py
