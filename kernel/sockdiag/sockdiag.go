// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package sockdiag asks the kernel for the round trip times of the TCP connections of network namespaces.
//
// Inputs are process ids and times since the look before; output is the median of the smoothed round trip times of connections
// that have sent something and heard an answer since, those within the namespace left out: of MaxKnown at most, the first in the kernel's
// table, whose order is by chance but the same at each look. A thread of its own enters each namespace
// for one question and goes home again; nothing is held there, so that a namespace ends when its pod does. No process is stopped or
// changed, and nobody waits for an answer but that thread.
//
// What it costs to find connections depends on the machine more than on the pod: the kernel walks its one table of all connections, which
// has up to half a million places, for milliseconds. Connections that are known it finds at once. Therefore an answer brings some along to
// be asked about again, and every batch says how much CPU time it has cost: whoever asks has to keep a budget. The first question has a
// kernel with modules load tcp_diag, as ss(8) does.
//
// It imports kernel/netlink, kernel/proc (for the path, and the type of its errors), golang.org/x/sys and the standard library only. Kernel
// documents: sock_diag(7), netlink(7), network_namespaces(7); CONFIG_INET_DIAG, and the right CAP_SYS_ADMIN to enter a namespace.
package sockdiag

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/proc"
)

// Question is about the namespace of one process.
type Question struct {
	PID int
	// Since is how long ago what is new began.
	Since time.Duration
	// Known are connections of an earlier answer: those alone are asked about. Without any the kernel walks its table. They belong to the
	// Looker with the batch.
	Known []Connection
}

// Answer to one question.
type Answer struct {
	// RTT is the median, of so many connections; 0 of none.
	RTT         time.Duration
	Connections int
	// Known are connections to ask about again, MaxKnown at most: some that a walk has met, or what is left of the question's.
	Known []Connection
	// Err is nil of a process that has gone: its answer has no connections.
	Err error
}

// Batch is some questions with their answers, in one order.
type Batch struct {
	Questions []Question
	// Answers are those that were given before the time was up.
	Answers []Answer
	// Limit is how much CPU time the batch may take: no question is begun after it. Spent is what it has taken.
	Limit, Spent time.Duration
}

// Looker answers batches, one at a time. Ask, Take and Close are for one goroutine.
type Looker struct {
	ask, answered chan *Batch
	busy          bool
	stop          atomic.Bool
}

// Open starts the thread and has it ask about its own namespace. Where the kernel cannot, or we may not, it is a
// *proc.UnsupportedError.
func Open(fs proc.FS) (*Looker, error) {
	l := &Looker{ask: make(chan *Batch, 1), answered: make(chan *Batch, 1)}
	ready := make(chan error)
	aside(func() {
		t, err := newThread(fs)
		ready <- err
		if err == nil {
			l.serve(t)
		}
	})
	if err := <-ready; err != nil {
		return nil, explain(err)
	}
	return l, nil
}

// aside runs work on a thread of its own, which ends with it, wherever it is then. It is not the main thread, which does not end, and
// which stands for the process in /proc.
func aside(work func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			work() // never unlocked
			return
		}
		held := make(chan struct{})
		go func() {
			runtime.LockOSThread() // another thread: the main one is held meanwhile
			close(held)
			work()
		}()
		<-held
		runtime.UnlockOSThread()
	}()
}

func explain(err error) error {
	no := func(why string) error {
		return fmt.Errorf("%w (%w)", &proc.UnsupportedError{Feature: "sock_diag", Why: why}, err)
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EINVAL):
		return no("the kernel has no CONFIG_INET_DIAG or CONFIG_NET_NS")
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return no("needs CAP_SYS_ADMIN to enter the network namespaces of pods")
	}
	return fmt.Errorf("ask about connections: %w", err)
}

// Ask has a batch answered, unless another one is: then it reports false. The batch belongs to the Looker until Take returns it.
func (l *Looker) Ask(b *Batch) bool {
	if l.busy {
		return false
	}
	l.busy = true
	l.ask <- b
	return true
}

// Take is the batch that was answered, nil while there is none.
func (l *Looker) Take() *Batch {
	select {
	case b := <-l.answered:
		l.busy = false
		return b
	default:
		return nil
	}
}

// Close ends the thread, after the question that it is at: a second at most.
func (l *Looker) Close() {
	l.stop.Store(true)
	close(l.ask)
	for range l.answered { // until serve closes it
	}
}

// serve answers until Close. A thread that does not find home again answers no more questions: it would look into the wrong namespace.
func (l *Looker) serve(t *thread) {
	defer close(l.answered)
	defer t.close()
	for b := range l.ask {
		begun := cpuTime()
		b.Answers, b.Spent = b.Answers[:0], 0
		for _, q := range b.Questions {
			if l.stop.Load() || b.Spent >= b.Limit {
				break
			}
			b.Answers = append(b.Answers, t.look(q))
			b.Spent = cpuTime() - begun
		}
		l.answered <- b
	}
}

// cpuTime is what the calling thread has used.
func cpuTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0 // no Linux refuses the clock
	}
	return time.Duration(ts.Nano())
}

// thread is what the thread that looks around has.
type thread struct {
	fs   proc.FS
	home int
	self unix.Stat_t
	// lost: it could not go home.
	lost error
	conn
}

func newThread(fs proc.FS) (*thread, error) {
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the own network namespace: %w", err)
	}
	t := &thread{fs: fs, home: home, conn: conn{buf: make([]byte, bufferSize), rtts: make([]uint32, 0, MaxKnown)}}
	if err = unix.Fstat(home, &t.self); err == nil {
		if err = unix.Setns(home, unix.CLONE_NEWNET); err == nil {
			err = t.walk(time.Second)
		}
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *thread) close() { unix.Close(t.home) } //nolint:errcheck // nothing was written

// look answers one question.
func (t *thread) look(q Question) Answer {
	if t.lost != nil {
		return Answer{Err: t.lost}
	}
	var known []Connection
	there, err := t.enter(q.PID)
	if there {
		if len(q.Known) > 0 {
			known, err = t.follow(q.Known, q.Since)
		} else if err = t.walk(q.Since); err == nil {
			known = t.keep(q.Known[:0])
		}
		if herr := unix.Setns(t.home, unix.CLONE_NEWNET); herr != nil {
			t.lost = fmt.Errorf("leave the network namespace of process %d: %w", q.PID, herr)
			return Answer{Err: t.lost}
		}
	}
	if err != nil || !there || len(t.rtts) == 0 {
		return Answer{Known: known, Err: err}
	}
	slices.Sort(t.rtts)
	return Answer{RTT: time.Duration(t.rtts[len(t.rtts)/2]) * time.Microsecond, Connections: len(t.rtts), Known: known}
}

// enter goes into the namespace of a process; false without an error where there is none to enter: the process has gone, or it is in
// our own, because another one has its number by now.
func (t *thread) enter(pid int) (bool, error) {
	path := t.fs.NetNS(pid)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		if st.Dev == t.self.Dev && st.Ino == t.self.Ino {
			return false, nil
		}
		err = unix.Setns(fd, unix.CLONE_NEWNET)
	}
	if err != nil {
		return false, fmt.Errorf("enter %s: %w", path, err)
	}
	return true, nil
}
