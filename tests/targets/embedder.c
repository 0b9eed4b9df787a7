/* A program with an interpreter of its own. It takes what python3 takes. With KEEPS_GIL in its
 * environment it runs a file, and then waits for a line outside Python without giving up the GIL;
 * for what follows it waits as it should. Compiled with SECOND it has a function of that name
 * besides Python's, as a static one of another library may be. */
#include <Python.h>

#include <stdlib.h>
#include <unistd.h>

#ifdef SECOND
#define NAME_OF(x) #x
#define NAME(x) NAME_OF(x)
static int second(void) __asm__(NAME(SECOND));
__attribute__((used)) static int second(void) { return 0; }
#endif

static void wait_for_line(void)
{
    char byte;

    while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n')
        ;
}

int main(int argc, char **argv)
{
    if (!getenv("KEEPS_GIL"))
        return Py_BytesMain(argc, argv);
    FILE *file = fopen(argv[argc - 1], "r");
    if (!file)
        return 1;
    Py_Initialize();
    PyRun_SimpleFile(file, argv[argc - 1]);
    fclose(file);
    wait_for_line();
    puts("done");
    fflush(stdout);
    PyThreadState *state = PyEval_SaveThread();
    wait_for_line();
    PyEval_RestoreThread(state);
    return Py_FinalizeEx();
}
