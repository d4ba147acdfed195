// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// errNoTimer is a CPU whose timer does not fire. Emulation loses one at a CPU's start, once in some hundred guests: whoever sleeps
// there never wakes, the kernel's own threads included. Nothing has run yet, so the machine is to be started anew.
var errNoTimer = errors.New("the timer of an emulated CPU does not fire")

// sleepsOn is how long is slept on each CPU, timerPatience how long all of them may take together.
const (
	sleepsOn      = 20 * time.Millisecond
	timerPatience = time.Minute
)

// checkTimers sleeps on every CPU. It waits without a timer of its own.
func checkTimers() error {
	awake, asleep := make(chan int), []int{}
	for cpu := range runtime.NumCPU() {
		asleep = append(asleep, cpu)
		go func() {
			runtime.LockOSThread() // it ends with its goroutine
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err == nil {
				for range 2 { // the first may have been armed elsewhere
					_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(sleepsOn)}, nil)
				}
			}
			awake <- cpu
		}()
	}
	for end := time.Now().Add(timerPatience); len(asleep) > 0; runtime.Gosched() {
		select {
		case cpu := <-awake:
			asleep = slices.DeleteFunc(asleep, func(c int) bool { return c == cpu })
		default:
			if time.Now().After(end) {
				return fmt.Errorf("%w: CPU %v", errNoTimer, asleep)
			}
		}
	}
	return nil
}
