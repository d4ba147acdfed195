// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

// Peaks are a model's percentiles, without margin.
type Peaks struct{ P60, P90, P95, P98, Max Resources }

// Peaks of a model; false when there is none. A resource that was never measured is 0.
func (s *Set) Peaks(k Key) (Peaks, bool) {
	m := s.models[k]
	if m == nil {
		return Peaks{}, false
	}
	var cpu, memory [len(percentiles)]float64
	m.cpu.quantiles(percentiles[:], cpu[:])
	m.memory.quantiles(percentiles[:], memory[:])
	at := func(p int) Resources { return round(cpu[column(p)], memory[column(p)]) }
	return Peaks{P60: at(60), P90: at(90), P95: at(95), P98: at(98), Max: at(100)}, true
}
