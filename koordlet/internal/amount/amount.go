// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package amount is the resources of a container, pod or node as Kubernetes lists them, in typed integers.
//
// Inputs are resource lists as they stand in an object; outputs are Amounts, and the Kubernetes text of one. It may import
// model/unit, api/protocol and api/strategy.
package amount

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
)

// maxDevices bounds the device resources of one list.
const maxDevices = 32

// Quantity is a quantity as it stands in an object, a string or a number, unread.
type Quantity string

// UnmarshalJSON takes any JSON value: a quantity that nobody can read must not lose the object around it.
func (q *Quantity) UnmarshalJSON(data []byte) error {
	*q = Quantity(bytes.Trim(data, `"`))
	return nil
}

// List is a resource list as it stands in an object.
type List map[string]Quantity

// Amounts are resources; 0 is none. A value is never changed once it has been handed on.
type Amounts struct {
	CPU, BatchCPU, MidCPU          unit.MilliCPU
	Memory, BatchMemory, MidMemory unit.Bytes
	// Devices are the other extended resources (koordinator.sh/gpu-core, nvidia.com/gpu …) by name; nil without any.
	Devices map[string]int64
}

// Parse reads a list. Resources that we do not use (storage, huge pages, pods) are skipped. What cannot be read counts as
// absent; the error names all of it, and the other amounts are valid.
func Parse(list List) (Amounts, error) {
	var out Amounts
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if err := out.set(name, string(list[name])); err != nil {
			errs = append(errs, fmt.Errorf("%.80s: %w", name, err))
		}
	}
	return out, errors.Join(errs...)
}

// set reads one resource. The deprecated name of batch resources counts when the current one is not there, which sorts
// behind it and overwrites it ("koordinator.sh/…" < "kubernetes.io/…").
func (a *Amounts) set(name, text string) error {
	switch name {
	case "cpu":
		n, err := strategy.ParseMilli(text)
		a.CPU = unit.MilliCPU(n)
		return err
	case protocol.ResourceBatchCPU, protocol.ResourceDeprecatedBatchCPU:
		return whole(&a.BatchCPU, text)
	case protocol.ResourceMidCPU:
		return whole(&a.MidCPU, text)
	case "memory":
		return whole(&a.Memory, text)
	case protocol.ResourceBatchMemory, protocol.ResourceDeprecatedBatchMemory:
		return whole(&a.BatchMemory, text)
	case protocol.ResourceMidMemory:
		return whole(&a.MidMemory, text)
	}
	if !strings.Contains(name, "/") {
		return nil
	}
	if len(a.Devices) == maxDevices {
		return fmt.Errorf("more than %d device resources", maxDevices)
	}
	var n int64
	if err := whole(&n, text); err != nil {
		return err
	}
	if a.Devices == nil {
		a.Devices = map[string]int64{}
	}
	a.Devices[name] = n
	return nil
}

func whole[T ~int64](to *T, text string) error {
	n, err := strategy.ParseQuantity(text)
	if err != nil {
		return err
	}
	*to = T(n)
	return nil
}

// Plus is a + b, saturating.
func (a Amounts) Plus(b Amounts) Amounts { return a.join(b, unit.Add[int64]) }

// Max is the larger of a and b, resource by resource.
func (a Amounts) Max(b Amounts) Amounts {
	return a.join(b, func(x, y int64) int64 { return max(x, y) })
}

func (a Amounts) join(b Amounts, f func(x, y int64) int64) Amounts {
	out := Amounts{
		CPU:         unit.MilliCPU(f(int64(a.CPU), int64(b.CPU))),
		BatchCPU:    unit.MilliCPU(f(int64(a.BatchCPU), int64(b.BatchCPU))),
		MidCPU:      unit.MilliCPU(f(int64(a.MidCPU), int64(b.MidCPU))),
		Memory:      unit.Bytes(f(int64(a.Memory), int64(b.Memory))),
		BatchMemory: unit.Bytes(f(int64(a.BatchMemory), int64(b.BatchMemory))),
		MidMemory:   unit.Bytes(f(int64(a.MidMemory), int64(b.MidMemory))),
		Devices:     a.Devices,
	}
	if len(b.Devices) > 0 {
		out.Devices = maps.Clone(a.Devices)
		if out.Devices == nil {
			out.Devices = make(map[string]int64, len(b.Devices))
		}
		for name, n := range b.Devices {
			out.Devices[name] = f(out.Devices[name], n)
		}
	}
	return out
}

// AnyCPU is CPU of every kind, saturating: batch and mid CPUs are CPUs that were lent.
func (a Amounts) AnyCPU() unit.MilliCPU { return unit.Add(unit.Add(a.CPU, a.BatchCPU), a.MidCPU) }

// AnyMemory is memory of every kind, saturating.
func (a Amounts) AnyMemory() unit.Bytes {
	return unit.Add(unit.Add(a.Memory, a.BatchMemory), a.MidMemory)
}

// Extended reports whether there are batch or mid resources.
func (a Amounts) Extended() bool {
	return a.BatchCPU != 0 || a.MidCPU != 0 || a.BatchMemory != 0 || a.MidMemory != 0
}

// FormatCPU is Kubernetes' canonical text of milli-CPUs: "64", "1500m".
func FormatCPU(m unit.MilliCPU) string {
	if m%1000 == 0 {
		return strconv.FormatInt(int64(m/1000), 10)
	}
	return strconv.FormatInt(int64(m), 10) + "m"
}

// FormatMemory is Kubernetes' canonical text of bytes: the largest binary suffix that loses nothing, "64Gi", "1536Mi",
// "1000".
func FormatMemory(b unit.Bytes) string {
	n, i := int64(b), 0
	const suffixes = "KMGTPE"
	for n != 0 && n%1024 == 0 && i < len(suffixes) {
		n /= 1024
		i++
	}
	text := strconv.FormatInt(n, 10)
	if i > 0 {
		text += suffixes[i-1:i] + "i"
	}
	return text
}
