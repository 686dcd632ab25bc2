# highwater: memory debug data out of a target, by GDB's own command language.
#
#   source mdd.gdb
#
#   mdd_dump             write the next of mddout.0, mddout.1, ...; refuses in the middle of an update
#   mdd_dumpnow          the same whatever the target is doing
#   mdd_reset            number from 0 again
#   mdd_next             number on behind the files that are there (needs the host tool)
#   mdd_watch_overflow   dump at each overflow of the history ring, and run on
#   mdd_at BYTES         dump and stop when so many bytes are alive
#
# Needs no Python and no debug information. Works with any GDB from 8 on and whatever
# it talks to: gdbserver, OpenOCD, J-Link, QEMU, or a native program. Nothing here
# calls a function in the target (a string literal as an argument would: GDB puts it
# into the target's memory with malloc).
#
# In a Rust program, where C casts are not understood: with language c -- mdd_dump
#
# SPDX-License-Identifier: MIT OR Apache-2.0

set $mdd_next = 0
# bytes a transfer step, between two lines of progress
set $mdd_step = 65536
# 1: a check by `highwater mdd check` follows each mdd_dump; 0: not there; 2: not asked yet
set $mdd_tool = 2
set $mdd_quiet = 0

# Where things lie: sets $mdd_h, or 0 if there is nothing to dump.
define _mdd_find
  set $mdd_h = (unsigned long)&highwater_mdd
  if *(unsigned int *)($mdd_h + 8) != 0x01020304 || *(unsigned char *)($mdd_h + 4) != 0x44
    printf "mdd: no memory debug data at 0x%lx. Is the program loaded and past its start code?\n", $mdd_h
    set $mdd_h = 0
  else
    set $mdd_word = *(unsigned char *)($mdd_h + 14)
    set $mdd_sections = *(unsigned char *)($mdd_h + 15)
    set $mdd_hsize = *(unsigned short *)($mdd_h + 16)
    set $mdd_ssize = *(unsigned short *)($mdd_h + 18)
  end
end

define _mdd_write
  set $mdd_end = $mdd_h + $mdd_hsize
  set $mdd_s = $mdd_end - $mdd_sections * $mdd_ssize
  set $mdd_ring = 0
  set $mdd_bytes = $mdd_hsize
  set $mdd_total = $mdd_hsize
  # how much it will be
  set $mdd_i = 0
  while $mdd_i < $mdd_sections
    set $mdd_e = $mdd_s + $mdd_i * $mdd_ssize
    if *(unsigned long *)($mdd_e + ($mdd_word == 8 ? 16 : 12)) != 0
      set $mdd_total = $mdd_total + *(unsigned short *)($mdd_e + 2) * *(unsigned int *)($mdd_e + 4)
    end
    set $mdd_i = $mdd_i + 1
  end
  eval "dump binary memory mddout.%d 0x%lx 0x%lx", $mdd_next, $mdd_h, $mdd_end
  set $mdd_i = 0
  while $mdd_i < $mdd_sections
    set $mdd_e = $mdd_s + $mdd_i * $mdd_ssize
    set $mdd_kind = *(unsigned short *)$mdd_e
    set $mdd_a = *(unsigned long *)($mdd_e + ($mdd_word == 8 ? 16 : 12))
    set $mdd_left = (unsigned long)*(unsigned short *)($mdd_e + 2) * *(unsigned int *)($mdd_e + 4)
    if $mdd_kind == 4
      set $mdd_ring = $mdd_e
    end
    while $mdd_a != 0 && $mdd_left != 0
      set $mdd_part = $mdd_left > $mdd_step ? $mdd_step : $mdd_left
      eval "append binary memory mddout.%d 0x%lx 0x%lx", $mdd_next, $mdd_a, $mdd_a + $mdd_part
      set $mdd_a = $mdd_a + $mdd_part
      set $mdd_left = $mdd_left - $mdd_part
      set $mdd_bytes = $mdd_bytes + $mdd_part
      if $mdd_part == $mdd_step && $mdd_step > 1023
        printf "mdd: mddout.%d %lu of %lu KiB\n", $mdd_next, $mdd_bytes / 1024, $mdd_total / 1024
      end
    end
    set $mdd_i = $mdd_i + 1
  end
  printf "mdd: wrote mddout.%d, %lu bytes, event %u\n", $mdd_next, $mdd_bytes, *(unsigned int *)($mdd_h + 28)
  # The ring has been taken away: start an empty one. In the middle of an update
  # the target is about to use these very words, so leave them alone then.
  if $mdd_ring != 0 && *(unsigned int *)($mdd_h + 24) == 0
    set var *(unsigned int *)($mdd_ring + 4) = 0
    set var *(unsigned int *)($mdd_h + 72) = 0
    set var *(unsigned int *)($mdd_h + 84) = 0
  end
  if $mdd_quiet == 0
    if $mdd_tool == 2
      shell command -v highwater >/dev/null 2>&1
      set $mdd_tool = 0
      if ! $_isvoid($_shell_exitcode)
        set $mdd_tool = $_shell_exitcode == 0
      end
    end
    if $mdd_tool == 1
      eval "shell highwater mdd check mddout.%d", $mdd_next
    end
  end
  set $mdd_next = $mdd_next + 1
end

define mdd_dump
  _mdd_find
  if $mdd_h != 0
    if *(unsigned int *)($mdd_h + 24) != 0
      printf "mdd: the target is in the middle of an update, a dump may be unsafe now: nothing written.\n"
      printf "mdd: go on with\n"
      printf "mdd:   tbreak highwater_mdd_done\n"
      printf "mdd:   continue\n"
      printf "mdd:   mdd_dump\n"
      printf "mdd: or take it as it is with mdd_dumpnow.\n"
    else
      _mdd_write
    end
  end
end
document mdd_dump
Write the target's memory debug data to the next of mddout.0, mddout.1, ...
Refuses while the target is in the middle of an update. Empties the history ring.
end

define mdd_dumpnow
  _mdd_find
  if $mdd_h != 0
    _mdd_write
  end
end
document mdd_dumpnow
Like mdd_dump, but whatever the target is doing: the file may have a flaw,
which the host tool will find and name.
end

define mdd_reset
  set $mdd_next = 0
  printf "mdd: the next file is mddout.0\n"
end
document mdd_reset
The next dumps are mddout.0, mddout.1, ... again and overwrite those files.
end

define mdd_next
  shell highwater mdd next --gdb > mddout.next.gdb && mv mddout.next.gdb mddout.next.tmp || rm -f mddout.next.gdb
  source mddout.next.tmp
  shell rm -f mddout.next.tmp
  printf "mdd: the next file is mddout.%d\n", $mdd_next
end
document mdd_next
Number on behind the mddout files that are in the current folder already.
Needs `highwater' on PATH.
end

define mdd_watch_overflow
  break highwater_mdd_history_overflow
  commands
    silent
    set $mdd_quiet = 1
    mdd_dump
    set $mdd_quiet = 0
    continue
  end
  printf "mdd: each overflow of the history makes a dump from now on\n"
end
document mdd_watch_overflow
Dump and empty the history each time that it overflows, and let the target run
on: the files together hold the complete history.
end

define mdd_at
  if $argc != 1
    printf "mdd: mdd_at BYTES\n"
  else
    _mdd_find
    if $mdd_h != 0
      set var *(unsigned long *)($mdd_h + 96 + 7 * $mdd_word) = $arg0
      tbreak highwater_mdd_mark
      commands
        silent
        printf "mdd: the heap holds %lu bytes\n", *(unsigned long *)($mdd_h + 96 + 2 * $mdd_word)
        mdd_dump
      end
    end
  end
end
document mdd_at
mdd_at BYTES: when so many bytes are alive, dump, and leave the target stopped there.
end
