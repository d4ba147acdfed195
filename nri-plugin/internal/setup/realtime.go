// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/kernel/proc"
)

// TimerSlack is that of koord-nri's threads, see run.TuneTimers; real time has none.
const TimerSlack = time.Millisecond

// instead begins what koordctl doctor is told of any other.
const instead = "shares a processor by its nice value: "

// scheduling is how the kernel schedules this process. An event waits under the runtime's lock, and with it every other creation on the node, for
// as long as we wait for a processor: in real time that is not at all, and background work rests after a quarter of a millisecond (engine's pace).
type scheduling struct {
	told atomic.Pointer[string]
	log  *slog.Logger
}

func newScheduling(log *slog.Logger) *scheduling {
	s := &scheduling{log: log}
	s.tell(instead + "it has not asked yet")
	return s
}

// String says which, and why not the other.
func (s *scheduling) String() string { return *s.told.Load() }

func (s *scheduling) tell(text string) { s.told.Store(&text) }

// enter asks for real time where it is wanted and hinders nobody, and reports whether it was given.
func (s *scheduling) enter(wanted bool, fs proc.FS) bool {
	if !wanted {
		s.tell(instead + status.RealTimeOff)
		return false
	}
	why := hinders(fs)
	if why == "" {
		err := run.RealTime()
		if err == nil {
			s.tell(status.InRealTime)
			return true
		}
		why = err.Error()
	}
	s.tell(instead + why)
	s.log.Info("not in real time", "why", why)
	return false
}

// hinders says why a process in real time would be in somebody's way on this kernel, "" for not.
func hinders(fs proc.FS) string {
	mounts, err := fs.Mounts()
	if err != nil {
		return "cannot tell whose the cpu controller is: " + err.Error()
	}
	if mounts.V1["cpu"] != "" {
		return "" // a cgroup without real time refuses by itself
	}
	groups, err := fs.RTGroups()
	switch {
	case err != nil:
		return "cannot tell whether the kernel shares out real time by cgroup: " + err.Error()
	case groups:
		return "the kernel shares out real time by cgroup (CONFIG_RT_GROUP_SCHED), and on cgroup v2 would switch on no cpu controller beside us"
	}
	return ""
}

// watch gives real time back when the kernel says that a thread does not sleep, and has problem keep that for people. It returns then, or when ctx ends.
func (s *scheduling) watch(ctx context.Context, problem func(where, key, reason string)) {
	run.WatchRealTime(ctx, func(why string, err error) {
		err = errors.Join(err, run.TuneTimers(TimerSlack))
		text := instead + "real time was given back, because " + why
		if err != nil {
			text = status.InRealTime + "; it cannot be given back, though " + why + ": " + err.Error()
		}
		s.tell(text)
		problem("koord-nri", "scheduling", text)
	})
}
