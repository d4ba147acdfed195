// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy

import (
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
)

// ErrRange is wrapped by every error of the validators.
var ErrRange = errors.New("out of range")

// Validate checks every given field of s against its range. Each error is a [FieldError] that names the JSON path, the value and
// the range; the order is that of the schema. An empty result means valid.
func Validate(s Spec) []error {
	c := &checker{}
	c.threshold("resourceUsedThresholdWithBE.", s.Threshold())
	if q := s.ResourceQOSStrategy; q != nil {
		const base = "resourceQOSStrategy."
		p := s.Policy()
		c.oneOf(base+"policies.cpuPolicy", p.CPUPolicy, CPUPolicyIdentity, CPUPolicyCoreSched)
		c.oneOf(base+"policies.netQOSPolicy", p.NETQOSPolicy, NetQOSPolicyTC, NetQOSPolicyTerway)
		c.oneOf(base+"policies.memoryHighPolicy", p.MemoryHighPolicy, MemoryHighLimit, MemoryHighRequest)
		c.class(base+"lsrClass.", q.LSRClass)
		c.class(base+"lsClass.", q.LSClass)
		c.class(base+"beClass.", q.BEClass)
		c.class(base+"systemClass.", q.SystemClass)
		c.class(base+"cgroupRoot.", q.CgroupRoot)
	}
	b := s.Burst()
	c.burst("cpuBurstStrategy.", b)
	c.between("cpuBurstStrategy.sharePoolThresholdPercent", b.SharePoolThresholdPercent, 0, 100)
	if s.SystemStrategy != nil {
		c.system("systemStrategy.", *s.SystemStrategy)
	}
	for i, app := range s.HostApplications {
		c.application(fmt.Sprintf("hostApplications[%d].", i), app)
	}
	return c.errs
}

// ValidateCPUQOS checks one cpuQOS; prefix stands before each field name ("" or ending in a dot).
func ValidateCPUQOS(prefix string, q *CPUQOS) []error {
	c := &checker{}
	c.cpu(prefix, q)
	return c.errs
}

// ValidateMemoryQOS checks one memoryQOS, see [ValidateCPUQOS].
func ValidateMemoryQOS(prefix string, q *MemoryQOS) []error {
	c := &checker{}
	c.memory(prefix, q)
	return c.errs
}

// ValidateBlocks checks the blocks of one blkioQOS, see [ValidateCPUQOS].
func ValidateBlocks(prefix string, blocks []Block) []error {
	c := &checker{}
	c.blocks(prefix, blocks)
	return c.errs
}

// ValidateCPUBurst checks one CPU burst strategy, see [ValidateCPUQOS].
func ValidateCPUBurst(prefix string, b CPUBurstStrategy) []error {
	c := &checker{}
	c.burst(prefix, b)
	c.between(prefix+"sharePoolThresholdPercent", b.SharePoolThresholdPercent, 0, 100)
	return c.errs
}

// checker gathers errors.
type checker struct {
	errs []error
}

// fail records what is wrong with the field at path.
func (c *checker) fail(path, format string, args ...any) {
	c.errs = append(c.errs, FieldError{Path: path, Err: fmt.Errorf(format, args...)})
}

// between checks low <= *v <= high; a nil v passes.
func (c *checker) between(path string, v *int64, low, high int64) {
	if v == nil || *v >= low && *v <= high {
		return
	}
	limits := fmt.Sprintf("%d..%d", low, high)
	if high == math.MaxInt64 {
		limits = fmt.Sprintf(">= %d", low)
	}
	c.fail(path, "%w: %d, want %s", ErrRange, *v, limits)
}

// atLeast checks *v >= low.
func (c *checker) atLeast(path string, v *int64, low int64) { c.between(path, v, low, math.MaxInt64) }

// below checks *v < *limit where both are given.
func (c *checker) below(path string, v *int64, limitName string, limit *int64) {
	if v != nil && limit != nil && *v >= *limit {
		c.fail(path, "%w: %d, want < %s (%d)", ErrRange, *v, limitName, *limit)
	}
}

// oneOf checks a string field.
func (c *checker) oneOf(path string, v *string, allowed ...string) {
	if v == nil {
		return
	}
	for _, a := range allowed {
		if *v == a {
			return
		}
	}
	c.fail(path, "%w: %.60q, want %s", ErrRange, *v, strings.Join(allowed, ", "))
}

func (c *checker) threshold(p string, t ResourceThresholdStrategy) {
	c.between(p+"cpuSuppressThresholdPercent", t.CPUSuppressThresholdPercent, 0, 100)
	c.between(p+"cpuSuppressMinPercent", t.CPUSuppressMinPercent, 0, 100)
	c.oneOf(p+"cpuSuppressPolicy", t.CPUSuppressPolicy, SuppressCPUSet, SuppressCFSQuota)
	c.between(p+"memoryEvictThresholdPercent", t.MemoryEvictThresholdPercent, 0, 100)
	c.between(p+"memoryEvictLowerPercent", t.MemoryEvictLowerPercent, 0, 100)
	memory := t.MemoryEvictThresholdPercent
	if memory == nil {
		memory = ptr[int64](70)
	}
	c.below(p+"memoryEvictLowerPercent", t.MemoryEvictLowerPercent, "memoryEvictThresholdPercent", memory)
	c.atLeast(p+"memoryAllocatableEvictThresholdPercent", t.MemoryAllocatableEvictThresholdPercent, 0)
	c.atLeast(p+"memoryAllocatableEvictLowerPercent", t.MemoryAllocatableEvictLowerPercent, 0)
	c.below(p+"memoryAllocatableEvictLowerPercent", t.MemoryAllocatableEvictLowerPercent,
		"memoryAllocatableEvictThresholdPercent", t.MemoryAllocatableEvictThresholdPercent)
	c.between(p+"memoryRequestUtilizationPercent", t.MemoryRequestUtilizationPercent, 0, 100)
	c.between(p+"cpuEvictBESatisfactionUpperPercent", t.CPUEvictBESatisfactionUpperPercent, 1, 99)
	c.between(p+"cpuEvictBESatisfactionLowerPercent", t.CPUEvictBESatisfactionLowerPercent, 1, 60)
	c.below(p+"cpuEvictBESatisfactionLowerPercent", t.CPUEvictBESatisfactionLowerPercent,
		"cpuEvictBESatisfactionUpperPercent", t.CPUEvictBESatisfactionUpperPercent)
	c.between(p+"cpuEvictBEUsageThresholdPercent", t.CPUEvictBEUsageThresholdPercent, 0, 100)
	c.atLeast(p+"cpuEvictTimeWindowSeconds", t.CPUEvictTimeWindowSeconds, 1)
	c.between(p+"cpuEvictThresholdPercent", t.CPUEvictThresholdPercent, 0, 100)
	c.between(p+"cpuEvictLowerPercent", t.CPUEvictLowerPercent, 0, 100)
	c.below(p+"cpuEvictLowerPercent", t.CPUEvictLowerPercent, "cpuEvictThresholdPercent", t.CPUEvictThresholdPercent)
	c.between(p+"cpuEvictPSIThresholdPercent", t.CPUEvictPSIThresholdPercent, 0, 100)
	c.atLeast(p+"cpuAllocatableEvictThresholdPercent", t.CPUAllocatableEvictThresholdPercent, 0)
	c.atLeast(p+"cpuAllocatableEvictLowerPercent", t.CPUAllocatableEvictLowerPercent, 0)
	c.below(p+"cpuAllocatableEvictLowerPercent", t.CPUAllocatableEvictLowerPercent,
		"cpuAllocatableEvictThresholdPercent", t.CPUAllocatableEvictThresholdPercent)
	c.oneOf(p+"cpuEvictPolicy", t.CPUEvictPolicy, EvictByRealLimit, EvictByAllocatable)
	if v := t.AllocatableEvictPriorityThreshold; v != nil {
		c.between(p+"allocatableEvictPriorityThreshold", ptr(int64(*v)), 0, 7999)
	}
}

func (c *checker) class(p string, r *ResourceQOS) {
	if r == nil {
		return
	}
	c.cpu(p+"cpuQOS.", r.CPUQOS)
	c.memory(p+"memoryQOS.", r.MemoryQOS)
	if r.BlkIOQOS != nil {
		c.blocks(p+"blkioQOS.", r.BlkIOQOS.Blocks)
	}
	c.resctrl(p+"resctrlQOS.", r.ResctrlQOS)
	if n := r.NetworkQOS; n != nil {
		c.network(p+"networkQOS.ingressRequest", n.IngressRequest)
		c.network(p+"networkQOS.ingressLimit", n.IngressLimit)
		c.network(p+"networkQOS.egressRequest", n.EgressRequest)
		c.network(p+"networkQOS.egressLimit", n.EgressLimit)
	}
}

func (c *checker) cpu(p string, q *CPUQOS) {
	if q == nil {
		return
	}
	c.between(p+"groupIdentity", q.GroupIdentity, -1, 2)
	c.between(p+"schedIdle", q.SchedIdle, 0, 1)
}

func (c *checker) memory(p string, q *MemoryQOS) {
	if q == nil {
		return
	}
	c.between(p+"minLimitPercent", q.MinLimitPercent, 0, 100)
	c.between(p+"lowLimitPercent", q.LowLimitPercent, 0, 100)
	c.between(p+"throttlingPercent", q.ThrottlingPercent, 0, 1000)
	c.between(p+"wmarkRatio", q.WmarkRatio, 0, 100)
	c.between(p+"wmarkScalePermill", q.WmarkScalePermill, 1, 1000)
	c.between(p+"wmarkMinAdj", q.WmarkMinAdj, -25, 50)
	c.between(p+"priorityEnable", q.PriorityEnable, 0, 1)
	c.between(p+"priority", q.Priority, 0, 12)
	c.between(p+"oomKillGroup", q.OomKillGroup, 0, 1)
	c.between(p+"pageCacheLimitPercent", q.PageCacheLimitPercent, 0, 100)
	c.quantity(p+"pageCacheLimitSize", q.PageCacheLimitSize)
}

func (c *checker) resctrl(p string, q *ResctrlQOS) {
	if q == nil {
		return
	}
	c.between(p+"catRangeStartPercent", q.CATRangeStartPercent, 0, 100)
	c.between(p+"catRangeEndPercent", q.CATRangeEndPercent, 0, 100)
	c.below(p+"catRangeStartPercent", q.CATRangeStartPercent, "catRangeEndPercent", q.CATRangeEndPercent)
	c.between(p+"mbaPercent", q.MBAPercent, 0, 100)
}

func (c *checker) network(p string, v *IntOrString) {
	switch {
	case v == nil:
	case v.IsString:
		c.quantity(p, ptr(Quantity(v.Str)))
	default:
		c.between(p, &v.Int, 0, 100)
	}
}

func (c *checker) quantity(p string, q *Quantity) {
	if q == nil {
		return
	}
	if _, err := q.Value(); err != nil {
		c.fail(p, "%w: %w", ErrRange, err)
	}
}

func (c *checker) blocks(p string, blocks []Block) {
	seen := make(map[[2]string]bool, len(blocks))
	for i, b := range blocks {
		at := fmt.Sprintf("%sblocks[%d].", p, i)
		c.oneOf(at+"type", &b.Type, BlockDevice, BlockVolumeGroup, BlockPodVolume)
		key := [2]string{b.Type, b.Name}
		if b.Name == "" || len(b.Name) > 253 || seen[key] || strings.ContainsFunc(b.Name, unprintable) {
			c.fail(at+"name", "%w: %.60q, want a printable name, once per type", ErrRange, b.Name)
		}
		seen[key] = true
		c.ioCfg(at+"ioCfg.", b.IOCfg)
	}
}

func (c *checker) ioCfg(p string, i IOCfg) {
	c.atLeast(p+"readIOPS", i.ReadIOPS, 0)
	c.atLeast(p+"writeIOPS", i.WriteIOPS, 0)
	c.atLeast(p+"readBPS", i.ReadBPS, 0)
	c.atLeast(p+"writeBPS", i.WriteBPS, 0)
	c.between(p+"ioWeightPercent", i.IOWeightPercent, 1, 100)
	c.atLeast(p+"readLatency", i.ReadLatency, 0)
	c.atLeast(p+"writeLatency", i.WriteLatency, 0)
	c.between(p+"readLatencyPercent", i.ReadLatencyPercent, 0, 100)
	c.between(p+"writeLatencyPercent", i.WriteLatencyPercent, 0, 100)
	c.atLeast(p+"modelReadBPS", i.ModelReadBPS, 1)
	c.atLeast(p+"modelWriteBPS", i.ModelWriteBPS, 1)
	c.atLeast(p+"modelReadSeqIOPS", i.ModelReadSeqIOPS, 1)
	c.atLeast(p+"modelWriteSeqIOPS", i.ModelWriteSeqIOPS, 1)
	c.atLeast(p+"modelReadRandIOPS", i.ModelReadRandIOPS, 1)
	c.atLeast(p+"modelWriteRandIOPS", i.ModelWriteRandIOPS, 1)
}

func (c *checker) burst(p string, b CPUBurstStrategy) {
	c.oneOf(p+"policy", b.Policy, BurstNone, BurstCPUBurstOnly, BurstCFSQuotaOnly, BurstAuto)
	c.between(p+"cpuBurstPercent", b.CPUBurstPercent, 1, 10000)
	c.atLeast(p+"cfsQuotaBurstPercent", b.CFSQuotaBurstPercent, 100)
	c.atLeast(p+"cfsQuotaBurstPeriodSeconds", b.CFSQuotaBurstPeriodSeconds, -1)
}

func (c *checker) system(p string, s SystemStrategy) {
	c.atLeast(p+"minFreeKbytesFactor", s.MinFreeKbytesFactor, 1)
	c.between(p+"watermarkScaleFactor", s.WatermarkScaleFactor, 1, 400)
	c.between(p+"memcgReapBackGround", s.MemcgReapBackGround, 0, 1)
	c.between(p+"schedGroupIdentityEnabled", s.SchedGroupIdentityEnabled, 0, 1)
	c.atLeast(p+"schedIdleSaverWmark", s.SchedIdleSaverWmark, 0)
	c.between(p+"pageCacheLimitEnabled", s.PageCacheLimitEnabled, 0, 1)
	c.quantity(p+"totalNetworkBandwidth", s.TotalNetworkBandwidth)
}

// application checks a host application; its paths become cgroup paths and must stay below their base.
func (c *checker) application(p string, a HostApplication) {
	if a.Name == "" || strings.ContainsRune(a.Name, '/') || strings.ContainsFunc(a.Name, unprintable) || a.Name == "." || a.Name == ".." {
		c.fail(p+"name", "%w: %.60q, want a name without slash", ErrRange, a.Name)
	}
	c.oneOf(p+"qos", &a.QoS, "", "LSE", "LSR", "LS", "BE", "SYSTEM")
	if a.CgroupPath == nil {
		return
	}
	c.oneOf(p+"cgroupPath.base", &a.CgroupPath.Base, "", BaseCgroupRoot, BaseKubepods, BaseKubepodsBurstable,
		BaseKubepodsBestEff)
	c.inside(p+"cgroupPath.parentDir", a.CgroupPath.ParentDir)
	c.inside(p+"cgroupPath.relativePath", a.CgroupPath.RelativePath)
}

// inside refuses paths that climb out of their base.
func (c *checker) inside(p, dir string) {
	climbs := strings.HasPrefix(path.Clean(strings.TrimLeft(dir, "/")), "..")
	if climbs || strings.ContainsFunc(dir, unprintable) {
		c.fail(p, "%w: %.60q, want a path below its base", ErrRange, dir)
	}
}

// unprintable is true for control characters and everything that would blur a log line.
func unprintable(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }
