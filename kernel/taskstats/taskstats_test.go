// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package taskstats

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
)

// attr is one attribute with its padding.
func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(attrSize+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, align(len(b))-len(b))...)
}

// answer is a message as the kernel sends it.
func answer(kind uint16, seq uint32, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(headerSize+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, 0)
	b = binary.NativeEndian.AppendUint32(b, seq)
	return append(binary.NativeEndian.AppendUint32(b, 4711), body...)
}

func stats(delay uint64) []byte {
	s := make([]byte, 400)
	binary.NativeEndian.PutUint64(s[runDelayOffset:], delay)
	nest := append(attr(unix.TASKSTATS_TYPE_TGID, []byte{1, 0, 0, 0}), attr(unix.TASKSTATS_TYPE_STATS, s)...)
	return append([]byte{unix.TASKSTATS_CMD_NEW, 1, 0, 0}, attr(unix.TASKSTATS_TYPE_AGGR_TGID, nest)...)
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	errno := func(n int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(-n)) }
	for name, c := range map[string]struct {
		msg   []byte
		mine  bool
		err   error
		delay uint64
	}{
		"stats":              {answer(28, 7, stats(1_234_567_890_123)), true, nil, 1_234_567_890_123},
		"of an older one":    {answer(28, 6, stats(1)), false, nil, 0},
		"no such process":    {answer(unix.NLMSG_ERROR, 7, errno(int32(unix.ESRCH))), true, unix.ESRCH, 0},
		"acknowledgement":    {answer(unix.NLMSG_ERROR, 7, errno(0)), false, errAnswer, 0},
		"error without code": {answer(unix.NLMSG_ERROR, 7, nil), false, errAnswer, 0},
		"no generic header":  {answer(28, 7, nil), false, errAnswer, 0},
		"empty":              {nil, false, errAnswer, 0},
		"longer than it is":  {answer(28, 7, stats(1))[:40], false, errAnswer, 0},
	} {
		payload, mine, err := parseAnswer(c.msg, 7)
		if mine != c.mine || !errors.Is(err, c.err) {
			t.Errorf("%s: mine %v, %v", name, mine, err)
		}
		if !mine || err != nil {
			continue
		}
		if got, err := parseRunDelay(payload); got != c.delay || err != nil {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
	short := attr(unix.TASKSTATS_TYPE_AGGR_TGID, attr(unix.TASKSTATS_TYPE_STATS, make([]byte, 24)))
	if got, err := parseRunDelay(short); err == nil {
		t.Errorf("a struct of 24 bytes has %d", got)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(answer(28, 7, stats(5)))
	f.Add(answer(unix.NLMSG_ERROR, 7, []byte{1}))
	f.Add([]byte{16, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		payload, mine, err := parseAnswer(b, 7)
		if err != nil && payload != nil || !mine && payload != nil {
			t.Errorf("%x: payload beside %v", b, err)
		}
		if n, err := parseRunDelay(payload); err != nil && n != 0 {
			t.Errorf("%d beside %v", n, err)
		}
	})
}

// notAsked ends the test where the kernel does not answer: for want of a right, or without the code for it.
func notAsked(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, os.ErrPermission) {
		kerneltest.Permitted(t, err, unix.CAP_NET_ADMIN)
	}
	t.Log(err)
	kerneltest.LeaveToVM(t, kerneltest.Unbuilt("CONFIG_TASKSTATS"))
}

// TestKernel asks the running kernel about ourselves, and compares with procfs, which knows our main thread; or has a typed refusal.
func TestKernel(t *testing.T) {
	t.Parallel()
	c, err := Dial()
	if err != nil {
		var unsupported *proc.UnsupportedError
		if !errors.As(err, &unsupported) || !errors.Is(err, errors.ErrUnsupported) {
			t.Fatal(err)
		}
		notAsked(t, err)
	}
	defer c.Close()
	b := root.Get()
	defer b.Put()
	var main proc.SchedStat
	if err := proc.FS("/proc").ThreadSchedStat(b, os.Getpid(), &main); err != nil {
		t.Fatal(err)
	}
	all, err := c.RunDelay(os.Getpid())
	if err != nil || all < main.WaitNS {
		t.Errorf("all threads waited %d ns, %v; the first alone %d", all, err, main.WaitNS)
	}
	if again, err := c.RunDelay(os.Getpid()); err != nil || again < all {
		t.Errorf("it shrinks from %d to %d, %v", all, again, err)
	}
	if n, err := c.RunDelay(1 << 30); !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) {
		t.Errorf("no process: %d, %v", n, err)
	}
}
