# fish completion of probing(1).
function __probing_root
    set -q PROBE; and echo $PROBE; or echo /probe
end

function __probing_processes
    for directory in (__probing_root)/*
        set -l pid (string match -r '[0-9]+$' $directory)
        and printf '%s\t%s\n' $pid (tr '\0\n' '  ' 2>/dev/null </proc/$pid/cmdline)
    end
    for link in (__probing_root)/by-rank/*
        printf 'rank:%s\t%s\n' (basename $link) (readlink $link)
    end
end

# The words before the one that is completed, without -t and the like.
function __probing_words
    commandline -opc | string match -v -r '^(-t|-p|--target|--pid)$'
end

# Whether N of them stand there, and the last COMMANDS has the third, if any are given.
function __probing_at
    set -l words (__probing_words)
    set -l there $argv[1]
    if test "$there" = any
        set there (math "max(3, $(count $words))")
    end
    test (count $words) = $there; or return 1
    test (count $argv) -eq 1; or contains -- "$words[3]" $argv[2..]
end

function __probing_names
    set -l words (__probing_words)
    set -l process (string replace -r '^rank:' by-rank/ -- $words[2])
    set -l below (string replace THREAD "$words[4]" -- $argv[1])
    for path in (__probing_root)/$process/$below/*
        string replace -r '\.csv$' '' (basename $path)
    end
end

complete -c probing -f
complete -c probing -k -n '__probing_at 1' -a '(__probing_processes)'
complete -c probing -n '__probing_at 1' -a list -d 'the Python processes that there are'
complete -c probing -n '__probing_at 1' -a launch -d 'a program with PROBING=1'
complete -c probing -n '__probing_at 1' -a cluster -d 'every rank'
complete -c probing -n '__probing_at 1' -a all -d 'every process at once'
complete -c probing -n '__probing_at 1' -s t -s p -l target -l pid -x -a '(__probing_processes)'
for described in 'backtrace:where it is' 'locals:its variables' threads: 'tasks:of asyncio' 'locks:who waits for what' \
        status: 'globals:what its modules bind' 'tables:what SQL selects from' query:SQL memory: 'heap:its objects by type' top: crash: \
        'events:as they happen' 'errors:of commands' 'eval:Python in it' 'repl:a conversation' 'inject:the agent' \
        'detach:the agent' 'config:what is set' 'ctl:its verbs' record:rows 'performance:--cc or --torch' profile: \
        flamegraph: break:breakpoints 'watch:a value' 'pause:all threads, or one' continue: step: next: finish: return: until: jump: \
        'debug:--dump or --pause'
    set -l parts (string split -m 1 : $described)
    complete -c probing -n "__probing_at 2; and not contains (__probing_words)[2] list ls l launch cluster" -a $parts[1] -d "$parts[2]"
end
complete -c probing -n '__probing_at 2; and contains (__probing_words)[2] cluster' -a 'nodes query'
complete -c probing -n 'contains (__probing_words)[2] list ls l' -s v -d 'with more columns'
complete -c probing -n 'contains (__probing_words)[2] list ls l' -s t -d 'as a tree'
complete -c probing -n '__probing_at 3 backtrace bt b locals repl r step next finish return until jump continue pause' -a '(__probing_names threads)'
complete -c probing -n '__probing_at 4 locals repl r' -a '(__probing_names threads/THREAD/frames)'
complete -c probing -n '__probing_at 4 step' -a own
complete -c probing -n '__probing_at 3 tables tbl' -a '(__probing_names tables)'
complete -c probing -n '__probing_at 3 globals' -a '(__probing_names globals)'
complete -c probing -n '__probing_at 3 record' -a 'exceptions gc loop process torch spans events'
complete -c probing -n '__probing_at 4 record' -a 'on off'
complete -c probing -n '__probing_at 3 ctl' -a 'attach detach status interpreter on-crash pause continue record profile'
complete -c probing -n '__probing_at 3 config cfg c' -a 'torch.profiling= pprof.sample_freq= record. on-crash= interpreter='
complete -c probing -n '__probing_at any performance perf p' -l cc -l torch
complete -c probing -n '__probing_at any debug dbg d' -l dump -l pause
complete -c probing -n '__probing_at any inject in i' -s c -d 'record a crash'
complete -c probing -n '__probing_at any query q' -s f -x -a 'table csv json'
complete -c probing -n '__probing_at any flamegraph flame fg' -a 'pprof torch'
complete -c probing -n '__probing_at any flamegraph flame fg' -s o -r -F
complete -c probing -n '__probing_at any flamegraph flame fg' -s j
