package page

// Dim writes what matters less.
func (p *Page) Dim(text string) string { return p.paint("2", text) }

// Bold writes what matters more.
func (p *Page) Bold(text string) string { return p.paint("1", text) }

// Red, Yellow and Green write what is wrong, what may be wrong and what is right.
func (p *Page) Red(text string) string { return p.paint("31", text) }

// Yellow is between Red and Green.
func (p *Page) Yellow(text string) string { return p.paint("33", text) }

// Green is the opposite of Red.
func (p *Page) Green(text string) string { return p.paint("32", text) }

func (p *Page) paint(code, text string) string {
	if !p.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
