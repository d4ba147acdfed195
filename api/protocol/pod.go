// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// ParsePod reads the wish of one pod. A key that cannot be used leaves its part of the Ask empty and adds one Problem;
// the other keys still count (of the feature lists the valid names count). Problems come in a fixed order of keys.
// Keys that other programs read (eviction-*, scheduling hints) are not looked at. A pod without any of our keys costs
// no allocation. The Ask shares no memory with the maps except strings.
func ParsePod(labels, annotations map[string]string) (Ask, []Problem) {
	if !concerned(labels, annotations) {
		return Ask{}, nil
	}
	r := &podReader{labels: labels, annotations: annotations}
	r.readLabels()
	r.readAnnotations()
	r.readOwn()
	return r.ask, r.problems
}

// labelKeys and annotationKeys are the keys ParsePod reads.
var (
	labelKeys = [...]string{
		LabelQoSClass, LabelPriorityClass, LabelCoreSchedGroupID, LabelCoreSchedPolicy, LabelGPUIsolationProvider,
		KeyOptOut,
	}
	annotationKeys = [...]string{
		AnnotationExtendedResource, AnnotationResourceStatus, AnnotationCPUBurst, AnnotationCPUQOS, AnnotationMemoryQOS,
		AnnotationBlkIOQOS, AnnotationNetworkQOS, AnnotationResctrl, AnnotationDeviceAllocated, AnnotationOOMScoreAdj,
		AnnotationOOMScoreAdjSpec, KeyOptOut, AnnotationRequired,
	}
)

// concerned reports whether any key of ours is present.
func concerned(labels, annotations map[string]string) bool {
	if len(labels) > 0 {
		for _, key := range labelKeys {
			if _, ok := labels[key]; ok {
				return true
			}
		}
	}
	if len(annotations) > 0 {
		for _, key := range annotationKeys {
			if _, ok := annotations[key]; ok {
				return true
			}
		}
	}
	return false
}

// podReader fills one Ask.
type podReader struct {
	labels      map[string]string
	annotations map[string]string
	ask         Ask
	problems    []Problem
}

// problem records why a key is not used.
func (r *podReader) problem(key string, err error) {
	r.problems = append(r.problems, Problem{Key: key, Reason: reason(err)})
}

// read runs one parser on a key of m; false when the key is absent or bad.
func read[T any](r *podReader, m map[string]string, key string, parse func(string) (T, error)) (T, bool) {
	var zero T
	value, ok := m[key]
	if !ok {
		return zero, false
	}
	if len(value) > MaxValueBytes {
		r.problem(key, errTooLong(value))
		return zero, false
	}
	out, err := parse(value)
	if err != nil {
		r.problem(key, err)
		return zero, false
	}
	return out, true
}

func (r *podReader) readLabels() {
	r.ask.QoS, _ = read(r, r.labels, LabelQoSClass, readQoS)
	r.ask.PriorityClass, _ = read(r, r.labels, LabelPriorityClass, readPriorityClass)
	r.ask.CoreSchedGroup, _ = read(r, r.labels, LabelCoreSchedGroupID, readName)
	r.ask.CoreSchedPolicy, _ = read(r, r.labels, LabelCoreSchedPolicy, readCoreSchedPolicy)
	r.ask.GPUIsolationProvider, _ = read(r, r.labels, LabelGPUIsolationProvider, readGPUIsolation)
}

func (r *podReader) readAnnotations() {
	a := r.annotations
	r.ask.Extended, r.ask.HasExtended = read(r, a, AnnotationExtendedResource, ParseExtendedResource)
	r.ask.ResourceStatus = readPointer(r, AnnotationResourceStatus, ParseResourceStatus)
	r.ask.CPUBurst = readPointer(r, AnnotationCPUBurst, ParseCPUBurst)
	r.ask.CPUQOS = readPointer(r, AnnotationCPUQOS, ParseCPUQOS)
	r.ask.MemoryQOS = readPointer(r, AnnotationMemoryQOS, ParseMemoryQOS)
	r.ask.BlkIO, _ = read(r, a, AnnotationBlkIOQOS, ParseBlkIO)
	r.ask.Network = readPointer(r, AnnotationNetworkQOS, ParseNetworkQOS)
	r.ask.Resctrl = readPointer(r, AnnotationResctrl, ParseResctrl)
	r.ask.Devices, _ = read(r, a, AnnotationDeviceAllocated, ParseDeviceAllocated)
	r.ask.OOMScoreAdj = readPointer(r, AnnotationOOMScoreAdj, ParseOOMScoreAdj)
	r.ask.OOMScoreAdjByContainer, _ = read(r, a, AnnotationOOMScoreAdjSpec, ParseOOMScoreAdjSpec)
}

// readPointer is read for annotations whose absence is nil.
func readPointer[T any](r *podReader, key string, parse func(string) (T, error)) *T {
	out, ok := read(r, r.annotations, key, parse)
	if !ok {
		return nil
	}
	return &out
}

// readOwn reads the feature lists: what is valid in a list counts even when a name in it is not.
func (r *podReader) readOwn() {
	r.ask.OptOut = r.features(r.labels, KeyOptOut) | r.features(r.annotations, KeyOptOut)
	r.ask.Required = r.features(r.annotations, AnnotationRequired)
}

func (r *podReader) features(m map[string]string, key string) FeatureSet {
	value := m[key]
	if len(value) > MaxValueBytes {
		r.problem(key, errTooLong(value))
		return 0
	}
	set, unknown := readFeatureSet(value)
	if unknown != "" {
		r.problem(key, fmt.Errorf("unknown feature %s", quote(unknown)))
	}
	return set
}

func readQoS(s string) (QoS, error) {
	q, ok := ParseQoS(s)
	if !ok {
		return QoSNone, fmt.Errorf("unknown class %s, want LSE, LSR, LS, BE or SYSTEM", quote(s))
	}
	return q, nil
}

func readPriorityClass(s string) (PriorityClass, error) {
	p, ok := ParsePriorityClass(s)
	if !ok {
		return PriorityNone, fmt.Errorf("unknown class %s, want koord-prod, koord-mid, koord-batch or koord-free", quote(s))
	}
	return p, nil
}

func readName(s string) (string, error) { return s, checkName(s, true) }

func readCoreSchedPolicy(s string) (string, error) {
	switch s {
	case CoreSchedPolicyGroup, CoreSchedPolicyNone, CoreSchedPolicyExclusive:
		return s, nil
	}
	return "", fmt.Errorf("unknown policy %s, want none, exclusive or nothing", quote(s))
}

func readGPUIsolation(s string) (string, error) {
	if s == "" || s == GPUIsolationHAMi || s == GPUIsolationMPS {
		return s, nil
	}
	return "", fmt.Errorf("unknown provider %s, want %s or %s", quote(s), GPUIsolationHAMi, GPUIsolationMPS)
}

// ParseOOMScoreAdj reads oom-score-adj: a whole number -1000..1000.
func ParseOOMScoreAdj(s string) (int, error) {
	v, err := strconv.Atoi(s)
	if err != nil || v < -1000 || v > 1000 {
		return 0, fmt.Errorf("%s: want a whole number -1000..1000", quote(s))
	}
	return v, nil
}

// ParseOOMScoreAdjSpec reads oom-score-adj-spec: JSON of container name to oom-score-adj.
func ParseOOMScoreAdjSpec(s string) (map[string]int, error) {
	var out map[string]int
	if err := decode(s, &out); err != nil {
		return nil, err
	}
	for _, name := range sortedKeys(out) {
		if err := checkName(name, false); err != nil {
			return nil, err
		}
		if v := out[name]; v < -1000 || v > 1000 {
			return nil, fmt.Errorf("container %s: %d, want -1000..1000", quote(name), v)
		}
	}
	return out, nil
}

// ParseCPUBurst reads cpuBurst. Ranges as the node's strategy.
func ParseCPUBurst(s string) (CPUBurst, error) {
	var out CPUBurst
	if err := decode(s, &out); err != nil {
		return CPUBurst{}, err
	}
	return checked(out, strategy.ValidateCPUBurst("", strategy.CPUBurstStrategy{
		Policy: out.Policy, CPUBurstPercent: out.CPUBurstPercent, CFSQuotaBurstPercent: out.CFSQuotaBurstPercent,
		CFSQuotaBurstPeriodSeconds: out.CFSQuotaBurstPeriodSeconds,
	}))
}

// ParseCPUQOS reads cpuQOS.
func ParseCPUQOS(s string) (strategy.CPUQOS, error) {
	var out strategy.CPUQOS
	if err := decode(s, &out); err != nil {
		return strategy.CPUQOS{}, err
	}
	return checked(out, strategy.ValidateCPUQOS("", &out))
}

// ParseMemoryQOS reads memoryQOS.
func ParseMemoryQOS(s string) (MemoryQOS, error) {
	var out MemoryQOS
	if err := decode(s, &out); err != nil {
		return MemoryQOS{}, err
	}
	switch out.Policy {
	case "", strategy.MemoryPolicyDefault, strategy.MemoryPolicyNone, strategy.MemoryPolicyAuto:
	default:
		return MemoryQOS{}, fmt.Errorf("policy: unknown value %s, want default, none or auto", quote(out.Policy))
	}
	return checked(out, strategy.ValidateMemoryQOS("", &out.MemoryQOS))
}

// ParseBlkIO reads blkioQOS; "enable": false gives no blocks.
func ParseBlkIO(s string) ([]strategy.Block, error) {
	var out strategy.BlkIOQOS
	if err := decode(s, &out); err != nil {
		return nil, err
	}
	if errs := strategy.ValidateBlocks("", out.Blocks); len(errs) > 0 {
		return nil, errs[0]
	}
	if out.Enable != nil && !*out.Enable {
		return nil, nil
	}
	return out.Blocks, nil
}

// checked is out, or nothing of it and the first error.
func checked[T any](out T, errs []error) (T, error) {
	if len(errs) > 0 {
		var zero T
		return zero, errs[0]
	}
	return out, nil
}

// checkName bounds a container name, group id or similar.
func checkName(s string, empty bool) error {
	if s == "" && !empty || len(s) > MaxName || !utf8.ValidString(s) || strings.ContainsFunc(s, notGraphic) {
		return fmt.Errorf("name %s: want at most %d printable characters", quote(s), MaxName)
	}
	return nil
}

// notGraphic is true for spaces, control characters and the replacement of broken UTF-8.
func notGraphic(r rune) bool {
	return r <= ' ' || r == 0x7f || r == utf8.RuneError || !strconv.IsGraphic(r)
}
