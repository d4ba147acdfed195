// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/psi"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
)

// classPressure measures how long BE waits for CPUs: the growth of "some" of cpu.pressure of Kubernetes' BestEffort cgroup, in each
// tick, because what is decided by it looks at the average of a window of seconds (Documentation/accounting/psi.rst). The file stays
// open.
type classPressure struct {
	of   string // the class's path
	file root.Held
	rate sample.Rate
	// absent counts ticks without the file; then it is looked for less often.
	absent uint32
	now    psi.Stat
}

// ClassPressure is the collector's name: where it is not active, the kernel may not tell how long BE waits for CPUs.
const ClassPressure = "classpsi"

func newClassPressure(m *machine) (collector, support) {
	if path := m.proc.Path("pressure", "cpu"); unix.Access(path, unix.F_OK) != nil {
		return nil, support{no: "no " + path + ": CONFIG_PSI or psi=1 is missing"}
	}
	c := &classPressure{}
	if m.opts.Cgroup == node.CgroupV1 {
		return c, support{less: "cgroup v1 has the pressure of a class only where the runtime keeps containers in a unified hierarchy as well, or on an Anolis kernel"}
	}
	return c, support{}
}

func (c *classPressure) collect(t *tick) {
	path := ""
	if t.bestEffort != nil {
		path = t.bestEffort.Path()
	}
	if path != c.of {
		c.close()
		*c = classPressure{of: path}
	}
	if path == "" || !c.open(t) {
		return
	}
	raw, err := c.file.Read(t.buf)
	if err == nil {
		err = psi.Parse(raw, &c.now)
	}
	switch {
	case err == nil:
		t.emitRate(sample.OfQoS(protocol.QoSBE), sample.StallCPUSome, &c.rate, c.now.Some.TotalUS, 1, t.clock())
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP): // removed; psi=0, or cgroup.pressure is 0
		c.file.Close()
		c.absent, c.rate = 1, sample.Rate{}
	default:
		t.fail(err)
	}
}

// open opens the file if it is not and there is one.
func (c *classPressure) open(t *tick) bool {
	if c.file.Open() {
		return true
	}
	if c.absent > 0 && c.absent%lazyPressure != 0 {
		c.absent++
		return false
	}
	c.absent++
	path := t.bestEffort.PressureFile(resources[cpuPressure].name)
	if path == "" {
		return false
	}
	held, err := root.Hold(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		if !errors.Is(err, unix.ENOENT) {
			t.fail(err)
		}
		return false
	}
	c.file, c.absent = held, 0
	return true
}

func (c *classPressure) close() { c.file.Close() }
