// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// costOf is a strategy for the cost control of a disk, with an io.weight for best-effort pods, which only that makes count. The targets are such
// that an emulated disk meets them.
func costOf(disk string) string {
	return "resourceQOSStrategy:\n  beClass: {blkioQOS: {enable: true, blocks: [{name: " + disk + ", type: device, ioCfg: {ioWeightPercent: 50}}]}}\n" +
		"  cgroupRoot: {blkioQOS: {enable: true, blocks: [{name: " + disk + ", type: device, ioCfg: {readLatency: 900000, writeLatencyPercent: 0, enableUserModel: true, " +
		"modelReadBPS: 4000000000, modelReadSeqIOPS: 400001, modelReadRandIOPS: 400002, modelWriteBPS: 4000000001, modelWriteSeqIOPS: 400003, modelWriteRandIOPS: 400004}}]}}\n"
}

// What the kernel shows of it.
const (
	costQoS   = "enable=1 ctrl=user rpct=95.00 rlat=900000 wpct=0.00 "
	costModel = "ctrl=user model=linear rbps=4000000000 rseqiops=400001 rrandiops=400002 wbps=4000000001 wseqiops=400003 wrandiops=400004"
)

// costLine is a disk's line in a file of the root cgroup, without its number; "" where it has none.
func (r *rig) costLine(file, number string) string {
	r.t.Helper()
	text, err := cgroups.Read(r.tree.Unified, file)
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), number+" "); ok {
			return rest
		}
	}
	return ""
}

// costs waits until both lines of a disk begin like this.
func (r *rig) costs(limit time.Duration, number, qos, model string) {
	r.t.Helper()
	r.eventually(limit, func() error {
		if q, m := r.costLine("io.cost.qos", number), r.costLine("io.cost.model", number); !strings.HasPrefix(q, qos) || !strings.HasPrefix(m, model) {
			return fmt.Errorf("io.cost.qos of %s is %q, io.cost.model %q; want %q, %q", number, q, m, qos, model)
		}
		return nil
	})
}

// writeCost is an administrator's write.
func (r *rig) writeCost(file, number, words string) {
	r.t.Helper()
	if err := cgroups.Write(r.tree.Unified, file, number+" "+words); err != nil {
		r.t.Fatal(err)
	}
}

// disksWeigh: a disk's lines are set while the strategy names it, kept against others, and as before afterwards: off where there was none, an
// administrator's own byte for byte. With it weights count, which features tells.
func disksWeigh(l *loops) {
	name, number := l.disk()
	qos, model := l.costLine("io.cost.qos", number), l.costLine("io.cost.model", number)
	if strings.HasPrefix(qos, "enable=1") {
		l.t.Fatalf("iocost is on for %s before the test: %s", name, qos)
	}
	l.put(costOf(name))
	l.costs(20*time.Second, number, costQoS, costModel)
	l.tell("%s %s: io.cost.qos %q → %q, io.cost.model %q → %q", name, number, qos, l.costLine("io.cost.qos", number), model, l.costLine("io.cost.model", number))
	l.eventually(20*time.Second, func() error {
		text, err := l.value(l.be, "pod io.weight")
		if err == nil && !slices.Contains(strings.Split(text, "\n"), number+" 50") {
			err = fmt.Errorf("io.weight is %q, want the line %s 50", text, number)
		}
		return err
	})

	l.writeCost("io.cost.qos", number, "enable=0 ctrl=auto")
	l.writeCost("io.cost.model", number, "ctrl=auto")
	l.costs(20*time.Second, number, costQoS, costModel)

	l.put("")
	l.costs(20*time.Second, number, "enable=0 ctrl=auto ", "ctrl=auto ")
	off, own := l.costLine("io.cost.qos", number), l.costLine("io.cost.model", number)
	if qos != "" && qos != off || model != "" && model != own {
		l.t.Errorf("before: %q, %q; after: %q, %q", qos, model, off, own)
	}

	l.writeCost("io.cost.qos", number, "enable=1 rpct=50 rlat=800000 wpct=40 wlat=700000 min=50 max=150")
	l.writeCost("io.cost.model", number, "rbps=1000000000 rseqiops=100000 rrandiops=90000 wbps=900000000 wseqiops=80000 wrandiops=70000")
	defer func() {
		l.writeCost("io.cost.qos", number, "enable=0 ctrl=auto")
		l.writeCost("io.cost.model", number, "ctrl=auto")
	}()
	admins, theirs := l.costLine("io.cost.qos", number), l.costLine("io.cost.model", number)
	l.put(costOf(name))
	l.costs(20*time.Second, number, costQoS, costModel)
	if line := l.costLine("io.cost.qos", number); !strings.HasSuffix(line, " min=50.00 max=150.00") {
		l.t.Errorf("the bounds have no field and have changed: %s", line)
	}
	l.a.end(syscall.SIGKILL) // what it was before is known to the next life
	l.a.start()
	l.ticks(3, quietly)
	l.put("")
	l.costs(20*time.Second, number, admins, theirs)
	if q, m := l.costLine("io.cost.qos", number), l.costLine("io.cost.model", number); q != admins || m != theirs {
		l.t.Errorf("an administrator's lines came back as %q, %q; they were %q, %q", q, m, admins, theirs)
	}
	l.tell("an administrator's lines came back byte for byte: %q, %q", admins, theirs)
}

// diskForRestore has a disk's lines set, for whoever restores next; the result looks at what has become of them.
func diskForRestore(l *loops, spec string) (restored func()) {
	name, number := l.disk()
	l.put(spec + costOf(name))
	l.costs(20*time.Second, number, costQoS, costModel)
	return func() {
		l.t.Helper()
		l.costs(time.Second, number, "enable=0 ctrl=auto ", "ctrl=auto ")
	}
}
