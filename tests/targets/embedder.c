/* A program with an interpreter of its own. It takes what python3 takes. */
#include <Python.h>

int main(int argc, char **argv) { return Py_BytesMain(argc, argv); }
