// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

// QoS is Koordinator's QoS class of a pod.
type QoS uint8

// The classes; QoSNone means not labelled.
const (
	QoSNone QoS = iota
	QoSLSE
	QoSLSR
	QoSLS
	QoSBE
	QoSSystem
)

// ParseQoS reads a label value. The empty string is QoSNone and ok; an unknown value is QoSNone and not ok.
func ParseQoS(s string) (QoS, bool) {
	switch s {
	case "":
		return QoSNone, true
	case "LSE":
		return QoSLSE, true
	case "LSR":
		return QoSLSR, true
	case "LS":
		return QoSLS, true
	case "BE":
		return QoSBE, true
	case "SYSTEM":
		return QoSSystem, true
	default:
		return QoSNone, false
	}
}

// String is the label value; QoSNone is the empty string.
func (q QoS) String() string {
	switch q {
	case QoSLSE:
		return "LSE"
	case QoSLSR:
		return "LSR"
	case QoSLS:
		return "LS"
	case QoSBE:
		return "BE"
	case QoSSystem:
		return "SYSTEM"
	default:
		return ""
	}
}

// DefaultPriority is the priority class of a pod of this QoS that names none.
func (q QoS) DefaultPriority() PriorityClass {
	switch q {
	case QoSLSE, QoSLSR, QoSLS, QoSSystem:
		return PriorityProd
	case QoSBE:
		return PriorityBatch
	default:
		return PriorityNone
	}
}

// KubeQoS is Kubernetes' own QoS class of a pod.
type KubeQoS uint8

// The classes; KubeUnknown when nothing tells.
const (
	KubeUnknown KubeQoS = iota
	KubeGuaranteed
	KubeBurstable
	KubeBestEffort
)

// ParseKubeQoS reads status.qosClass, case as Kubernetes writes it.
func ParseKubeQoS(s string) (KubeQoS, bool) {
	switch s {
	case "Guaranteed":
		return KubeGuaranteed, true
	case "Burstable":
		return KubeBurstable, true
	case "BestEffort":
		return KubeBestEffort, true
	default:
		return KubeUnknown, false
	}
}

// String is Kubernetes' spelling; KubeUnknown is "Unknown".
func (k KubeQoS) String() string {
	switch k {
	case KubeGuaranteed:
		return "Guaranteed"
	case KubeBurstable:
		return "Burstable"
	case KubeBestEffort:
		return "BestEffort"
	default:
		return "Unknown"
	}
}

// DefaultQoS is the class of a pod without a QoS label: Guaranteed is LSR, Burstable LS, BestEffort BE.
func (k KubeQoS) DefaultQoS() QoS {
	switch k {
	case KubeGuaranteed:
		return QoSLSR
	case KubeBurstable:
		return QoSLS
	case KubeBestEffort:
		return QoSBE
	default:
		return QoSNone
	}
}

// PriorityClass is Koordinator's priority band.
type PriorityClass uint8

// The bands; PriorityNone is outside all of them.
const (
	PriorityNone PriorityClass = iota
	PriorityProd
	PriorityMid
	PriorityBatch
	PriorityFree
)

// ParsePriorityClass reads koord-prod, koord-mid, koord-batch, koord-free or the empty string (PriorityNone).
func ParsePriorityClass(s string) (PriorityClass, bool) {
	switch s {
	case "":
		return PriorityNone, true
	case "koord-prod":
		return PriorityProd, true
	case "koord-mid":
		return PriorityMid, true
	case "koord-batch":
		return PriorityBatch, true
	case "koord-free":
		return PriorityFree, true
	default:
		return PriorityNone, false
	}
}

// PriorityClassOf is the band of a numeric pod priority: 9000..9999 prod, 7000..7999 mid, 5000..5999 batch, 3000..3999
// free.
func PriorityClassOf(priority int32) PriorityClass {
	switch {
	case priority >= 9000 && priority <= 9999:
		return PriorityProd
	case priority >= 7000 && priority <= 7999:
		return PriorityMid
	case priority >= 5000 && priority <= 5999:
		return PriorityBatch
	case priority >= 3000 && priority <= 3999:
		return PriorityFree
	default:
		return PriorityNone
	}
}

// String is the label value; PriorityNone is the empty string.
func (p PriorityClass) String() string {
	switch p {
	case PriorityProd:
		return "koord-prod"
	case PriorityMid:
		return "koord-mid"
	case PriorityBatch:
		return "koord-batch"
	case PriorityFree:
		return "koord-free"
	default:
		return ""
	}
}
