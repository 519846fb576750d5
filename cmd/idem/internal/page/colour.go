package page

// Dim writes what matters less.
func (p *Page) Dim(text string) string { return p.paint("2", text) }

// Bold writes what matters more.
func (p *Page) Bold(text string) string { return p.paint("1", text) }

// Red writes what is wrong.
func (p *Page) Red(text string) string { return p.paint("31", text) }

// Yellow writes what may be wrong.
func (p *Page) Yellow(text string) string { return p.paint("33", text) }

// Green writes what is right.
func (p *Page) Green(text string) string { return p.paint("32", text) }

func (p *Page) paint(code, text string) string {
	if !p.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
