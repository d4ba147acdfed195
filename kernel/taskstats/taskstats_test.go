// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package taskstats

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/netlink"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
)

// attr is one attribute with its padding.
func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(netlink.AttrSize+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, netlink.Align(len(b))-len(b))...)
}

// answer is a message as the kernel sends it.
func answer(kind uint16, seq uint32, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(headerSize+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, 0)
	b = binary.NativeEndian.AppendUint32(b, seq)
	return append(binary.NativeEndian.AppendUint32(b, 4711), body...)
}

// stats is a struct of a version with some fields set.
func stats(version uint16, size int, fields map[uintptr]uint64) []byte {
	s := make([]byte, size)
	binary.NativeEndian.PutUint16(s, version)
	for at, v := range fields {
		if int(at)+8 <= size {
			binary.NativeEndian.PutUint64(s[at:], v)
		}
	}
	nest := append(attr(unix.TASKSTATS_TYPE_TGID, []byte{1, 0, 0, 0}), attr(unix.TASKSTATS_TYPE_STATS, s)...)
	return append([]byte{unix.TASKSTATS_CMD_NEW, 1, 0, 0}, attr(unix.TASKSTATS_TYPE_AGGR_TGID, nest)...)
}

// all has every field that is read, by its place in the kernel's header (version 13, 64 bits).
func all() map[uintptr]uint64 {
	return map[uintptr]uint64{24: 1_234_567_890_123, 32: 7, 40: 70_000, 312 + 8: 3000, 328 + 8: 200, 352 + 8: 10}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	errno := func(n int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(-n)) }
	whole := Delays{CPU: 1_234_567_890_123, Memory: 3210, Disk: 70_000, DiskWaits: 7}
	for name, c := range map[string]struct {
		msg  []byte
		mine bool
		err  error
		want Delays
	}{
		"stats":                {answer(28, 7, stats(13, 424, all())), true, nil, whole},
		"of a newer kernel":    {answer(28, 7, stats(18, 720, all())), true, nil, whole},
		"before compaction":    {answer(28, 7, stats(9, 344, all())), true, nil, Delays{CPU: whole.CPU, Memory: 3200, Disk: 70_000, DiskWaits: 7}},
		"before thrashing":     {answer(28, 7, stats(8, 328, all())), true, nil, Delays{CPU: whole.CPU, Memory: 3000, Disk: 70_000, DiskWaits: 7}},
		"fields in the middle": {answer(28, 7, stats(movedVersion, 552, all())), true, nil, Delays{CPU: whole.CPU}},
		"of an older one":      {answer(28, 6, stats(13, 424, all())), false, nil, Delays{}},
		"no such process":      {answer(unix.NLMSG_ERROR, 7, errno(int32(unix.ESRCH))), true, unix.ESRCH, Delays{}},
		"acknowledgement":      {answer(unix.NLMSG_ERROR, 7, errno(0)), false, errAnswer, Delays{}},
		"error without code":   {answer(unix.NLMSG_ERROR, 7, nil), false, errAnswer, Delays{}},
		"no generic header":    {answer(28, 7, nil), false, errAnswer, Delays{}},
		"empty":                {nil, false, errAnswer, Delays{}},
		"longer than it is":    {answer(28, 7, stats(13, 424, all()))[:40], false, errAnswer, Delays{}},
	} {
		payload, mine, err := parseAnswer(c.msg, 7)
		if mine != c.mine || !errors.Is(err, c.err) {
			t.Errorf("%s: mine %v, %v", name, mine, err)
		}
		if !mine || err != nil {
			continue
		}
		if got, _, err := parseDelays(payload); got != c.want || err != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	short := attr(unix.TASKSTATS_TYPE_AGGR_TGID, attr(unix.TASKSTATS_TYPE_STATS, make([]byte, 24)))
	if got, _, err := parseDelays(short); err == nil {
		t.Errorf("a struct of 24 bytes has %+v", got)
	}
}

// TestAccounts: whether waits are counted is the kernel's word, and each no says what is to be done or why.
func TestAccounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sysctl  string
		version uint16
		want    string
	}{
		"on":    {"1\n", 17, ""},
		"off":   {"0\n", 17, "kernel.task_delayacct is 0"},
		"moved": {"1\n", movedVersion, "version 15"},
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(dir+"/sys/kernel", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/sys/kernel/task_delayacct", []byte(c.sysctl), 0o600); err != nil {
			t.Fatal(err)
		}
		err := (&Client{version: c.version}).Accounts(proc.FS(dir))
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !errors.Is(err, errors.ErrUnsupported)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(answer(28, 7, stats(13, 424, all())))
	f.Add(answer(28, 7, stats(movedVersion, 552, all())))
	f.Add(answer(unix.NLMSG_ERROR, 7, []byte{1}))
	f.Add([]byte{16, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		payload, mine, err := parseAnswer(b, 7)
		if err != nil && payload != nil || !mine && payload != nil {
			t.Errorf("%x: payload beside %v", b, err)
		}
		if d, _, err := parseDelays(payload); err != nil && d != (Delays{}) {
			t.Errorf("%+v beside %v", d, err)
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
	all, err := c.Delays(os.Getpid())
	if err != nil || all.CPU < main.WaitNS {
		t.Errorf("all threads waited %+v, %v; the first alone %d", all, err, main.WaitNS)
	}
	if again, err := c.Delays(os.Getpid()); err != nil || again.CPU < all.CPU || again.Memory < all.Memory || again.Disk < all.Disk {
		t.Errorf("it shrinks from %+v to %+v, %v", all, again, err)
	}
	if d, err := c.Delays(1 << 30); !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) {
		t.Errorf("no process: %+v, %v", d, err)
	}
	// Where nothing is counted, nothing is told.
	if err := c.Accounts("/proc"); err != nil {
		t.Log(err)
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
	}
}
