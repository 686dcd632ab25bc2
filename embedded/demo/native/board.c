/*
 * The demos on a POSIX host.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../board.h"

/* nobody knows where the host's heap is */
char board_heap_start[1], board_heap_end[1], board_stack_low[1], board_stack_high[1];

void board_put(char byte) { (void)!write(1, &byte, 1); }
void board_say(const char *text) { (void)!write(1, text, strlen(text)); }
void board_exit(int status) { _exit(status); }
