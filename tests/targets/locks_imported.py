"""Waits, while it is imported, for a thread that imports it."""
import threading


def again():
    import locks_imported  # importer waits


thread = threading.Thread(target=again, name="importer", daemon=True)
thread.start()
thread.join()  # MainThread waits
