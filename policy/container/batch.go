// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// batchResources plans shares and memory limit from the container's batch or mid amounts. Its quota is composed with the
// other features' in draft.Quota.
//
// Example: batch-cpu request 500, batch-memory limit 2Gi give cpu.shares 512 and memory.limit 2147483648.
func (j *job) batchResources() {
	if !j.hasBatch || !j.Plans(protocol.FeatureBatch) {
		return
	}
	j.Shares(j.c.Base.Shares, &j.batch)
	limit, why := draft.MemoryLimit(j.c.Base.MemoryLimit, &j.batch, true, j.Planned())
	if why != "" && j.c.Base.MemoryLimit.Or(-1) != int64(limit) {
		j.Set(protocol.FeatureBatch, plan.MemoryLimit, plan.Int(limit), why)
	}
}
