// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package handoff

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Version of the files' format.
const Version = 1

// MaxBytes bounds one file on both sides.
const MaxBytes = 64 << 20

// Names of the files.
const (
	StrategyFile = "strategy.json"
	DynamicFile  = "dynamic.json"
	PodsFile     = "pods.json"
)

type envelope struct {
	Version    int       `json:"version"`
	Generation uint64    `json:"generation"`
	WrittenAt  time.Time `json:"writtenAt"`
	// Expires by the time of day, which may be set meanwhile, and the same moment as time since boot (CLOCK_BOOTTIME).
	Expires   time.Time       `json:"expires,omitzero"`
	ExpiresUp time.Duration   `json:"expiresUp,omitzero"`
	Payload   json.RawMessage `json:"payload"`
}

// left is how long what was written still holds at now, which is up after boot. The time of day counts only where the writer is an older
// one, which did not stamp the other, or stamped it by another boot's: then there would be more left than it was to last.
func (e *envelope) left(now time.Time, up time.Duration) time.Duration {
	if left := e.ExpiresUp - up; e.ExpiresUp > 0 && left <= e.Expires.Sub(e.WrittenAt) {
		return left
	}
	return e.Expires.Sub(now)
}

// wireDynamic is the payload of dynamic.json. CPU sets are kernel lists ("0-3,8").
type wireDynamic struct {
	// BECPUs is the suppression set, empty when suppression is off.
	BECPUs topo.CPUSet `json:"beCPUs"`
	// BESharesLSR: BE may run on LSR CPUs.
	BESharesLSR bool `json:"beSharesLSR,omitempty"`
	// BEQuota: the directory of Kubernetes' BestEffort class is held to a quota.
	BEQuota            bool        `json:"beQuota,omitempty"`
	SharePools         []node.Pool `json:"sharePools,omitempty"`
	BESharePools       []node.Pool `json:"beSharePools,omitempty"`
	SystemQoS          topo.CPUSet `json:"systemQoS"`
	SystemQoSExclusive bool        `json:"systemQoSExclusive,omitempty"`
	// Normalization in hundredths; 0 is off.
	Normalization unit.Ratio `json:"normalization,omitempty"`
	// Quotas by pod UID and MemoryHigh by container id are what the loops decided last.
	Quotas     map[string]wireQuota `json:"quotas,omitempty"`
	MemoryHigh map[string]wireHigh  `json:"memoryHigh,omitempty"`
	// OOMScores by container id.
	OOMScores map[string]wireScore `json:"oomScores,omitempty"`
	// DiskLimits by pod UID.
	DiskLimits map[string]wireDisk `json:"diskLimits,omitempty"`
	// Network says what network QoS cannot give, for people.
	Network node.Network `json:"network,omitzero"`
}

// wireQuota: Factors ≥ 1 by container id, Plus in µs per period, Cap in milli-CPUs, 0 for none.
type wireQuota struct {
	Factors map[string]unit.Fraction `json:"factors,omitempty"`
	Plus    unit.Micros              `json:"plus,omitempty"`
	Cap     unit.MilliCPU            `json:"cap,omitempty"`
}

// wireHigh is a memory.high in bytes.
type wireHigh struct {
	Bytes  unit.Bytes `json:"bytes"`
	Reason string     `json:"reason,omitempty"`
}

// wireScore is an oom_score_adj, -1000..1000.
type wireScore struct {
	Score  int64  `json:"score"`
	Reason string `json:"reason,omitempty"`
}

// wireDisk are bytes per second.
type wireDisk struct {
	Read   unit.Bytes `json:"read"`
	Write  unit.Bytes `json:"write"`
	Reason string     `json:"reason,omitempty"`
}

// Bounds of what the loops may ask for. No machine has so many CPUs that a quota raised further would still throttle.
const (
	maxFactor = 1e6
	maxPlus   = unit.Micros(1 << 53)
	maxCap    = unit.MilliCPU(1 << 40)
	maxReason = 1024
)

// wirePod is one value of the object, keyed by pod UID, that is the payload of pods.json.
type wirePod struct {
	Extended   map[string]wireExtended  `json:"extended,omitempty"`
	Containers map[string]wireContainer `json:"containers,omitempty"`
}

// wireExtended are batch and mid resources: milli-CPUs and bytes; absent is not given.
type wireExtended struct {
	Requests wireResources `json:"requests"`
	Limits   wireResources `json:"limits"`
}

type wireResources struct {
	BatchCPU    *int64 `json:"batchCPU,omitempty"`
	BatchMemory *int64 `json:"batchMemory,omitempty"`
	MidCPU      *int64 `json:"midCPU,omitempty"`
	MidMemory   *int64 `json:"midMemory,omitempty"`
}

// wireContainer are Kubernetes requests and limits: milli-CPUs and bytes; 0 is none.
type wireContainer struct {
	CPURequest    unit.MilliCPU `json:"cpuRequest,omitempty"`
	CPULimit      unit.MilliCPU `json:"cpuLimit,omitempty"`
	MemoryRequest unit.Bytes    `json:"memoryRequest,omitempty"`
	MemoryLimit   unit.Bytes    `json:"memoryLimit,omitempty"`
	// Devices are requested amounts by resource name.
	Devices map[string]int64 `json:"devices,omitempty"`
	// Init is whether it has ended before others begin.
	Init bool `json:"init,omitempty"`
}

// ErrFormat is wrapped by every error about a file's content.
var ErrFormat = errors.New("not a handoff file")

func parseEnvelope(b []byte) (envelope, error) {
	var e envelope
	if err := json.Unmarshal(b, &e); err != nil {
		return e, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	switch {
	case e.Version != Version:
		return e, fmt.Errorf("%w: version %d, want %d", ErrFormat, e.Version, Version)
	case len(e.Payload) == 0 || string(e.Payload) == "null":
		return e, fmt.Errorf("%w: no payload", ErrFormat)
	}
	return e, nil
}

func parseStrategy(b []byte) (*strategy.Spec, uint64, error) {
	e, err := parseEnvelope(b)
	if err != nil {
		return nil, 0, err
	}
	s := &strategy.Spec{}
	if err := json.Unmarshal(e.Payload, s); err != nil {
		return nil, 0, fmt.Errorf("%w: strategy: %w", ErrFormat, err)
	}
	if errs := strategy.Validate(*s); len(errs) > 0 {
		return nil, 0, fmt.Errorf("%w: strategy: %w", ErrFormat, errors.Join(errs...))
	}
	return s, e.Generation, nil
}

func parseDynamic(b []byte) (node.Dynamic, envelope, error) {
	e, err := parseEnvelope(b)
	if err != nil {
		return node.Dynamic{}, envelope{}, err
	}
	if e.Expires.IsZero() {
		return node.Dynamic{}, envelope{}, fmt.Errorf("%w: dynamic state without expires", ErrFormat)
	}
	var w wireDynamic
	if err := json.Unmarshal(e.Payload, &w); err != nil {
		return node.Dynamic{}, envelope{}, fmt.Errorf("%w: dynamic state: %w", ErrFormat, err)
	}
	if w.Normalization < 0 {
		return node.Dynamic{}, envelope{}, fmt.Errorf("%w: dynamic state: normalization is negative", ErrFormat)
	}
	quotas, high, err := w.loops()
	if err != nil {
		return node.Dynamic{}, envelope{}, fmt.Errorf("%w: dynamic state: %w", ErrFormat, err)
	}
	disks, err := w.disks()
	if err != nil {
		return node.Dynamic{}, envelope{}, fmt.Errorf("%w: dynamic state: %w", ErrFormat, err)
	}
	scores, err := w.scores()
	if err != nil {
		return node.Dynamic{}, envelope{}, fmt.Errorf("%w: dynamic state: %w", ErrFormat, err)
	}
	return node.Dynamic{
		DiskLimits: disks, OOMScores: scores,
		Known: true, Expires: e.Expires, BECPUs: w.BECPUs, BESharesLSR: w.BESharesLSR, BEQuota: w.BEQuota, SharePools: w.SharePools,
		BESharePools: w.BESharePools, SystemQoS: w.SystemQoS, SystemQoSExclusive: w.SystemQoSExclusive,
		Normalization: w.Normalization, Quotas: quotas, MemoryHigh: high,
		Network: node.Network{Missing: clip(w.Network.Missing), Limited: clip(w.Network.Limited)},
	}, e, nil
}

// scores reads whose OOM score is tuned.
func (w *wireDynamic) scores() (out map[string]node.OOMScore, err error) {
	info := plan.OOMScoreAdj.Info()
	for id, s := range w.OOMScores {
		if s.Score < info.Min || s.Score > info.Max || len(s.Reason) > maxReason {
			return nil, fmt.Errorf("oom_score_adj of container %.64q: %d, or a reason of %d", id, s.Score, len(s.Reason))
		}
		if out == nil {
			out = make(map[string]node.OOMScore, len(w.OOMScores))
		}
		out[id] = node.OOMScore(s)
	}
	return out, nil
}

// disks reads who is held at the disks.
func (w *wireDynamic) disks() (out map[string]node.DiskLimit, err error) {
	for uid, l := range w.DiskLimits {
		if l.Read <= 0 || l.Write <= 0 || len(l.Reason) > maxReason {
			return nil, fmt.Errorf("disk limit of pod %.64q: read %d, write %d, or a reason of %d", uid, l.Read, l.Write, len(l.Reason))
		}
		if out == nil {
			out = make(map[string]node.DiskLimit, len(w.DiskLimits))
		}
		out[uid] = node.DiskLimit(l)
	}
	return out, nil
}

// clip bounds a text for people.
func clip(s string) string { return s[:min(len(s), maxReason)] }

// loops reads what the loops have decided for single pods and containers.
func (w *wireDynamic) loops() (quotas map[string]node.QuotaLoop, high map[string]node.MemoryHigh, err error) {
	if len(w.Quotas) > 0 {
		quotas = make(map[string]node.QuotaLoop, len(w.Quotas))
	}
	for uid, q := range w.Quotas {
		if q.Plus < 0 || q.Plus > maxPlus || q.Cap < 0 || q.Cap > maxCap {
			return nil, nil, fmt.Errorf("quota of pod %.64q: plus %d or cap %d is out of range", uid, q.Plus, q.Cap)
		}
		for id, f := range q.Factors {
			if f < 1 || f > maxFactor {
				return nil, nil, fmt.Errorf("quota of pod %.64q: factor %g of container %.64q is out of range", uid, f, id)
			}
		}
		quotas[uid] = node.QuotaLoop(q)
	}
	if len(w.MemoryHigh) > 0 {
		high = make(map[string]node.MemoryHigh, len(w.MemoryHigh))
	}
	for id, h := range w.MemoryHigh {
		if h.Bytes <= 0 || len(h.Reason) > maxReason {
			return nil, nil, fmt.Errorf("memory.high of container %.64q: %d bytes, or a reason of %d", id, h.Bytes, len(h.Reason))
		}
		high[id] = node.MemoryHigh(h)
	}
	return quotas, high, nil
}

// wireLoops is the way back.
func wireLoops(d *node.Dynamic) (quotas map[string]wireQuota, high map[string]wireHigh) {
	quotas, high = make(map[string]wireQuota, len(d.Quotas)), make(map[string]wireHigh, len(d.MemoryHigh))
	for uid, q := range d.Quotas {
		quotas[uid] = wireQuota(q)
	}
	for id, h := range d.MemoryHigh {
		high[id] = wireHigh(h)
	}
	return quotas, high
}

func parsePods(b []byte) (map[string]node.PodSpec, uint64, error) {
	e, err := parseEnvelope(b)
	if err != nil {
		return nil, 0, err
	}
	var w map[string]wirePod
	if err := json.Unmarshal(e.Payload, &w); err != nil {
		return nil, 0, fmt.Errorf("%w: pods: %w", ErrFormat, err)
	}
	out := make(map[string]node.PodSpec, len(w))
	for uid, p := range w {
		spec := node.PodSpec{}
		if len(p.Extended) > 0 {
			spec.Extended = make(map[string]protocol.ExtendedContainer, len(p.Extended))
		}
		for name, x := range p.Extended {
			spec.Extended[name] = protocol.ExtendedContainer{Limits: x.Limits.resources(), Requests: x.Requests.resources()}
		}
		if len(p.Containers) > 0 {
			spec.Containers = make(map[string]node.ContainerSpec, len(p.Containers))
		}
		for name, c := range p.Containers {
			if min(c.CPURequest, c.CPULimit) < 0 || min(c.MemoryRequest, c.MemoryLimit) < 0 {
				return nil, 0, fmt.Errorf("%w: pods: pod %.64q: a request or limit is negative", ErrFormat, uid)
			}
			spec.Containers[name] = node.ContainerSpec(c)
		}
		out[uid] = spec
	}
	return out, e.Generation, nil
}

func (w wireResources) resources() protocol.ExtendedResources {
	return protocol.ExtendedResources{BatchCPU: w.BatchCPU, MidCPU: w.MidCPU, BatchMemory: w.BatchMemory, MidMemory: w.MidMemory}
}

func wireOf(r protocol.ExtendedResources) wireResources {
	return wireResources{BatchCPU: r.BatchCPU, MidCPU: r.MidCPU, BatchMemory: r.BatchMemory, MidMemory: r.MidMemory}
}

func wirePods(pods map[string]node.PodSpec) map[string]wirePod {
	out := make(map[string]wirePod, len(pods))
	for uid, p := range pods {
		w := wirePod{Extended: map[string]wireExtended{}, Containers: map[string]wireContainer{}}
		for name, x := range p.Extended {
			w.Extended[name] = wireExtended{Requests: wireOf(x.Requests), Limits: wireOf(x.Limits)}
		}
		for name, c := range p.Containers {
			w.Containers[name] = wireContainer(c)
		}
		out[uid] = w
	}
	return out
}
