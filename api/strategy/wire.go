// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// ErrConflict means that both spellings of a field are set and differ.
var ErrConflict = errors.New("two spellings of one field differ")

// Wire is NodeSLO's spec as users write it: the canonical spelling plus the one of the seed documents
// (resourceThresholdStrategy, blkIOQOS). Stored objects keep the user's spelling; [Normalise] gives the canonical one.
type Wire struct {
	// ResourceUsedThresholdWithBE gates and sizes suppression and eviction of best-effort pods.
	ResourceUsedThresholdWithBE *ResourceThresholdStrategy `json:"resourceUsedThresholdWithBE,omitempty"`
	// ResourceThresholdStrategy (documents) is resourceUsedThresholdWithBE.
	ResourceThresholdStrategy *WireThreshold `json:"resourceThresholdStrategy,omitempty"`
	// ResourceQOSStrategy holds the parameters of each QoS class.
	ResourceQOSStrategy *WireQOSStrategy `json:"resourceQOSStrategy,omitempty"`
	// CPUBurstStrategy says how far LS pods may exceed their CPU limit.
	CPUBurstStrategy *CPUBurstStrategy `json:"cpuBurstStrategy,omitempty"`
	// SystemStrategy holds node-wide kernel settings; fields not given are not written.
	SystemStrategy *SystemStrategy `json:"systemStrategy,omitempty"`
	// Extensions is a free map of third-party strategies, kept as given.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Extensions map[string]json.RawMessage `json:"extensions,omitempty"`
	// HostApplications are cgroups outside Kubernetes that take part in QoS.
	HostApplications []HostApplication `json:"hostApplications,omitempty"`
}

// WireThreshold is the seed spelling of resourceUsedThresholdWithBE.
type WireThreshold struct {
	Enable     *bool       `json:"enable,omitempty"`
	Thresholds *Thresholds `json:"thresholds,omitempty"`
}

// Thresholds are the four seed keys, whole percents 0..100.
type Thresholds struct {
	// CPUSuppressPercent is cpuSuppressThresholdPercent.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUSuppressPercent *int64 `json:"cpu-suppress-percent,omitempty"`
	// CPUEvictThresholdPercent is cpuEvictPSIThresholdPercent: the documents mean CPU scheduling latency.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	CPUEvictThresholdPercent *int64 `json:"cpu-evict-threshold-percent,omitempty"`
	// MemoryEvictThresholdPercent is memoryEvictThresholdPercent.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MemoryEvictThresholdPercent *int64 `json:"memory-evict-threshold-percent,omitempty"`
	// MemoryRequestUtilizationPercent is memoryRequestUtilizationPercent.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MemoryRequestUtilizationPercent *int64 `json:"memory-request-utilization-percent,omitempty"`
}

// WireQOSStrategy is resourceQOSStrategy with classes in either spelling.
type WireQOSStrategy struct {
	Policies    *Policies `json:"policies,omitempty"`
	LSRClass    *WireQOS  `json:"lsrClass,omitempty"`
	LSClass     *WireQOS  `json:"lsClass,omitempty"`
	BEClass     *WireQOS  `json:"beClass,omitempty"`
	SystemClass *WireQOS  `json:"systemClass,omitempty"`
	CgroupRoot  *WireQOS  `json:"cgroupRoot,omitempty"`
}

// WireQOS is ResourceQOS with blkioQOS in either spelling.
//
// +kubebuilder:validation:XValidation:rule="!has(self.blkioQOS) || !has(self.blkIOQOS) || dyn(self.blkioQOS) == dyn(self.blkIOQOS)",message="blkioQOS and blkIOQOS are two spellings of one field and differ; keep one"
type WireQOS struct {
	CPUQOS    *CPUQOS    `json:"cpuQOS,omitempty"`
	MemoryQOS *MemoryQOS `json:"memoryQOS,omitempty"`
	BlkIOQOS  *BlkIOQOS  `json:"blkioQOS,omitempty"`
	// SeedBlkIO (documents) is blkioQOS.
	SeedBlkIO  *BlkIOQOS   `json:"blkIOQOS,omitempty"`
	ResctrlQOS *ResctrlQOS `json:"resctrlQOS,omitempty"`
	NetworkQOS *NetworkQOS `json:"networkQOS,omitempty"`
}

// Wire writes a canonical spec as an object's spec; the two share memory.
func (s Spec) Wire() Wire {
	w := Wire{
		ResourceUsedThresholdWithBE: s.ResourceUsedThresholdWithBE, CPUBurstStrategy: s.CPUBurstStrategy,
		SystemStrategy: s.SystemStrategy, Extensions: s.Extensions, HostApplications: s.HostApplications,
	}
	if q := s.ResourceQOSStrategy; q != nil {
		w.ResourceQOSStrategy = &WireQOSStrategy{
			Policies: q.Policies, LSRClass: q.LSRClass.wire(), LSClass: q.LSClass.wire(), BEClass: q.BEClass.wire(),
			SystemClass: q.SystemClass.wire(), CgroupRoot: q.CgroupRoot.wire(),
		}
	}
	return w
}

// wire writes one class.
func (r *ResourceQOS) wire() *WireQOS {
	if r == nil {
		return nil
	}
	return &WireQOS{
		CPUQOS: r.CPUQOS, MemoryQOS: r.MemoryQOS, BlkIOQOS: r.BlkIOQOS, ResctrlQOS: r.ResctrlQOS, NetworkQOS: r.NetworkQOS,
	}
}

// DeepCopy is a copy that shares no memory with w; with DeepCopyInto, what an API type needs of a field.
func (w *Wire) DeepCopy() *Wire {
	if w == nil {
		return nil
	}
	out := clone(*w)
	return &out
}

// DeepCopyInto writes a copy into out.
func (w *Wire) DeepCopyInto(out *Wire) { *out = clone(*w) }

// Conflict is one field set in both spellings with different values.
type Conflict struct {
	// Canonical and Seed are the two JSON paths.
	Canonical string
	Seed      string
}

// Error names both spellings.
func (c Conflict) Error() string {
	return fmt.Sprintf("%s and %s: %v; keep one", c.Canonical, c.Seed, ErrConflict)
}

// Unwrap makes errors.Is(err, ErrConflict) true.
func (c Conflict) Unwrap() error { return ErrConflict }

// Normalise turns either spelling into the canonical one. A field set in both with different values is an error that
// names both, and the spec is empty then. The result shares no memory with w.
func Normalise(w Wire) (Spec, error) {
	spec, conflicts := NormaliseCanonical(w)
	if len(conflicts) == 0 {
		return spec, nil
	}
	errs := make([]error, len(conflicts))
	for i, c := range conflicts {
		errs[i] = c
	}
	return Spec{}, errors.Join(errs...)
}

// NormaliseCanonical is Normalise for objects that are already stored: where the spellings differ the canonical one
// wins and the conflict is listed.
func NormaliseCanonical(w Wire) (Spec, []Conflict) {
	w = clone(w)
	n := &normaliser{}
	spec := Spec{
		ResourceUsedThresholdWithBE: n.threshold(w.ResourceUsedThresholdWithBE, w.ResourceThresholdStrategy),
		CPUBurstStrategy:            w.CPUBurstStrategy,
		SystemStrategy:              w.SystemStrategy,
		Extensions:                  w.Extensions,
		HostApplications:            w.HostApplications,
	}
	if q := w.ResourceQOSStrategy; q != nil {
		spec.ResourceQOSStrategy = &ResourceQOSStrategy{
			Policies:    q.Policies,
			LSRClass:    n.class("lsrClass", q.LSRClass),
			LSClass:     n.class("lsClass", q.LSClass),
			BEClass:     n.class("beClass", q.BEClass),
			SystemClass: n.class("systemClass", q.SystemClass),
			CgroupRoot:  n.class("cgroupRoot", q.CgroupRoot),
		}
	}
	return spec, n.conflicts
}

// normaliser gathers conflicts.
type normaliser struct {
	conflicts []Conflict
}

// pick is the value of a field with two spellings.
func pick[T any](n *normaliser, canonical, seed *T, canonicalPath, seedPath string) *T {
	if canonical == nil {
		return seed
	}
	if seed != nil && !reflect.DeepEqual(canonical, seed) {
		n.conflicts = append(n.conflicts, Conflict{Canonical: canonicalPath, Seed: seedPath})
	}
	return canonical
}

// threshold merges resourceThresholdStrategy into resourceUsedThresholdWithBE.
func (n *normaliser) threshold(out *ResourceThresholdStrategy, seed *WireThreshold) *ResourceThresholdStrategy {
	if seed == nil {
		return out
	}
	if out == nil {
		out = &ResourceThresholdStrategy{}
	}
	const canonical, other = "resourceUsedThresholdWithBE.", "resourceThresholdStrategy."
	out.Enable = pick(n, out.Enable, seed.Enable, canonical+"enable", other+"enable")
	t := seed.Thresholds
	if t == nil {
		return out
	}
	const keys = other + "thresholds."
	out.CPUSuppressThresholdPercent = pick(n, out.CPUSuppressThresholdPercent, t.CPUSuppressPercent,
		canonical+"cpuSuppressThresholdPercent", keys+"cpu-suppress-percent")
	out.CPUEvictPSIThresholdPercent = pick(n, out.CPUEvictPSIThresholdPercent, t.CPUEvictThresholdPercent,
		canonical+"cpuEvictPSIThresholdPercent", keys+"cpu-evict-threshold-percent")
	out.MemoryEvictThresholdPercent = pick(n, out.MemoryEvictThresholdPercent, t.MemoryEvictThresholdPercent,
		canonical+"memoryEvictThresholdPercent", keys+"memory-evict-threshold-percent")
	out.MemoryRequestUtilizationPercent = pick(n, out.MemoryRequestUtilizationPercent, t.MemoryRequestUtilizationPercent,
		canonical+"memoryRequestUtilizationPercent", keys+"memory-request-utilization-percent")
	return out
}

// class merges blkIOQOS into blkioQOS.
func (n *normaliser) class(name string, w *WireQOS) *ResourceQOS {
	if w == nil {
		return nil
	}
	path := "resourceQOSStrategy." + name + "."
	return &ResourceQOS{
		CPUQOS:     w.CPUQOS,
		MemoryQOS:  w.MemoryQOS,
		BlkIOQOS:   pick(n, w.BlkIOQOS, w.SeedBlkIO, path+"blkioQOS", path+"blkIOQOS"),
		ResctrlQOS: w.ResctrlQOS,
		NetworkQOS: w.NetworkQOS,
	}
}
