// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// Suppressed is what a step of suppression decided, in the words of the status file. before is what was told of the step
// before: Since stays as long as nothing changes.
func Suppressed(before status.BE, out *suppress.Output, now time.Time) status.BE {
	be := status.BE{Mode: out.Mode.String(), Reason: out.Reason, Since: now}
	switch out.Mode {
	case suppress.CPUSet:
		be.CPUs = out.CPUs.String()
		limit := unit.MilliCPU(out.CPUs.Len()) * 1000
		be.Limit = &limit
	case suppress.Quota:
		be.Quota = out.Quota
		limit := unit.MilliFromQuota(out.Quota, unit.CFSPeriod)
		be.Limit = &limit
	}
	if out.Allowance.OK {
		allowance := out.Allowance.V
		be.Allowance = &allowance
	}
	if be.Mode == before.Mode && be.CPUs == before.CPUs && be.Quota == before.Quota && !before.Since.IsZero() {
		be.Since = before.Since
	}
	return be
}
